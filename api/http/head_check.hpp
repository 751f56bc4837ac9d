// The grammar of a request's head, without any of the liberties that servers and proxies take
// differently (RFC 9112, 11.2: request smuggling). Runs before the library's parser.
#pragma once

#include <optional>
#include <string_view>

namespace belljar::api {

inline constexpr std::size_t kMostHead = 32 * 1024;  ///< Bytes of request line and fields.
inline constexpr std::size_t kMostTarget = 8 * 1024;
inline constexpr std::size_t kMostFields = 100;

/// Why a request is refused before anything looks at what it says. The connection ends with it.
struct Refusal {
  Refusal() = default;
  Refusal(int number, std::string_view reason) : status(number), why(reason) {}
  int status = 400;
  std::string_view why;  ///< A literal.
};

/// Checks a whole head, the empty line included.
[[nodiscard]] std::optional<Refusal> check_head(std::string_view head);

/// The same of an answer, which comes from a server that nobody trusts.
[[nodiscard]] std::optional<Refusal> check_response_head(std::string_view head);

/// Checks what is there of a head that has no end yet: a line must not end in a bare LF, and no
/// more than kMostHead may come.
[[nodiscard]] std::optional<Refusal> check_partial_head(std::string_view head);

}  // namespace belljar::api
