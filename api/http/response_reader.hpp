// From bytes to an answer, of a server inside a sandbox that may say anything. Synchronous, as
// RequestReader is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "api/http/head_check.hpp"
#include "api/http/message.hpp"

namespace belljar::api {

/// Reads one answer. Where its end is must be beyond doubt: Content-Length beside
/// Transfer-Encoding, two lengths, folded fields and whatever else is read differently by others
/// make it kBroken.
class ResponseReader {
 public:
  enum class State {
    kHead,    ///< More of the head is needed.
    kBody,    ///< `head()` is there; more of the body is needed.
    kDone,    ///< All is there. What is left in the buffer is not of this answer.
    kBroken,  ///< `why()`. Nothing of it may be passed on from here.
  };
  enum class Of { kHead, kOther };  ///< The request's method: an answer to HEAD has no body.

  explicit ResponseReader(Of method);
  ~ResponseReader();
  ResponseReader(const ResponseReader&) = delete;
  ResponseReader& operator=(const ResponseReader&) = delete;

  /// Takes from the front of `buffer` what belongs to this answer. Interim ones (1xx) are passed
  /// over, but for 101.
  State feed(std::string& buffer);
  /// The connection has ended.
  State end();

  /// Its fields without any that is between two hops.
  [[nodiscard]] const Response& head() const { return head_; }
  /// Of the body, where it was told; of an answer to HEAD: what the body would have.
  [[nodiscard]] std::optional<std::uint64_t> length() const { return length_; }
  [[nodiscard]] std::string take_body();
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] std::string_view why() const { return why_; }

 private:
  struct Parser;
  State broken(std::string_view why);
  State feed_head(std::string& buffer);
  State feed_body(std::string& buffer);
  void take_head();

  Of method_;
  std::unique_ptr<Parser> parser_;  ///< Beast's.
  State state_ = State::kHead;
  int interim_ = 0;
  Response head_;
  std::optional<std::uint64_t> length_;
  std::string_view why_;
};

/// The fields of a message that are meant for the next hop and no further (RFC 9110, 7.6.1), those
/// that Connection lists among them, are left out; so are the ones that frame a message.
[[nodiscard]] Headers end_to_end(const Headers& headers);

}  // namespace belljar::api
