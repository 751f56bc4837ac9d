// From bytes to a Request, however the bytes are cut: the whole way that a stranger's input takes
// before a face sees it. Synchronous, so that it can be tested and fuzzed without a socket.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "api/http/head_check.hpp"
#include "api/http/message.hpp"

namespace belljar::api {

/// Reads one request. First its head; then whoever owns the reader decides, on the head alone,
/// whether the body may come and how large it may be; then the body.
class RequestReader {
 public:
  enum class State {
    kHead,     ///< More of the head is needed.
    kDecide,   ///< The head is there: call `accept_body`, or answer and close.
    kBody,     ///< More of the body is needed.
    kDone,     ///< `request()` is complete.
    kRefused,  ///< `refusal()` says why. Nothing that follows may be read as a request.
  };

  RequestReader();
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  /// Takes from the front of `buffer` what belongs to this request.
  State feed(std::string& buffer);

  /// Lets the body come, up to `limit` bytes: a larger Content-Length is refused at once.
  State accept_body(std::size_t limit);

  /// What has come of the body since the last time, for who does not wait for all of it.
  [[nodiscard]] std::string take_body();

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool begun() const { return begun_; }  ///< Whether any byte of it has come.
  [[nodiscard]] bool has_body() const;
  [[nodiscard]] std::optional<std::size_t> body_size() const;  ///< Where it was told.
  [[nodiscard]] bool expects_continue() const;
  [[nodiscard]] Request& request() { return request_; }
  [[nodiscard]] const Refusal& refusal() const { return refusal_; }

 private:
  struct Parser;

  State refuse(Refusal refusal);
  State feed_head(std::string& buffer);
  State feed_body(std::string& buffer);
  void take_head();

  std::unique_ptr<Parser> parser_;  ///< Beast's.
  State state_ = State::kHead;
  bool begun_ = false;
  Request request_;
  Refusal refusal_;
};

}  // namespace belljar::api
