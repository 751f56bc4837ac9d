// What streams are made of, as values: which form a client wants, which bytes of it, and from
// where.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "api/http/message.hpp"

namespace belljar::api {

/// Which of `offered` the Accept field of a request likes best, the first among equals; without
/// such a field the first. Nothing where it takes none of them (406).
[[nodiscard]] std::optional<std::size_t> choose_type(
    const Request& request, std::initializer_list<std::string_view> offered);

/// What a Range field asks for of so many bytes.
struct RangeWish {
  enum class Kind {
    kAll,   ///< There is none, or one that nobody has to understand (RFC 9110, 14.2).
    kPart,  ///< [from, to)
    kNone,  ///< Nothing that is there: 416.
  };
  Kind kind = Kind::kAll;
  std::uint64_t from = 0, to = 0;
};
[[nodiscard]] RangeWish wanted_range(const Request& request, std::uint64_t size);
/// "bytes 0-99/200"; with no `size` "bytes 0-99/*": nobody knows yet.
[[nodiscard]] std::string content_range(std::uint64_t from, std::uint64_t to,
                                        std::optional<std::uint64_t> size);

/// Whether a field that lists entity tags names `etag`, which is without quotes: weak ones too.
[[nodiscard]] bool names_etag(std::string_view field, std::string_view etag);

/// "stdout=120,stderr=7", which is the id of an event of output.
struct Offsets {
  std::uint64_t out = 0, err = 0;
};
[[nodiscard]] std::string offsets_text(const Offsets& offsets);
[[nodiscard]] std::optional<Offsets> parse_offsets(std::string_view text);

/// One event of a text/event-stream.
[[nodiscard]] std::string sse_event(std::string_view type, std::string_view id,
                                    std::string_view data);

}  // namespace belljar::api
