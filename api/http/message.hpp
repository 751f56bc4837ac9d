// A request and an answer as values: what every face of the API works with, free of any library.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/base/unique_fd.hpp"

namespace belljar::api {

/// Field names and values in the order they came in. Names compare without regard to case.
class Headers {
 public:
  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  /// The value of the only field of that name; nothing when there is none or more than one.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view name) const;
  [[nodiscard]] std::size_t count(std::string_view name) const;
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& all() const {
    return fields_;
  }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

/// Who sent a request, as the kernel says.
struct Peer {
  bool local = false;                  ///< Over the unix socket.
  uid_t uid = static_cast<uid_t>(-1);  ///< Of a local peer.
  gid_t gid = static_cast<gid_t>(-1);
  pid_t pid = 0;  ///< The same; 0 where it is in no PID namespace of ours.
  /// The pidfd of whoever has connected, from the start: the connection may be another's by now,
  /// and the number. Nothing where it had ended before.
  std::shared_ptr<const UniqueFd> process = {};
  std::string address;  ///< "127.0.0.1:40312", or "uid 0".
};

struct Request {
  std::string id;  ///< Ours, for the logs and for whoever reports a failure.
  std::string method;
  std::string target;  ///< As it was sent.
  /// The parts of the path, percent-decoded: a slash in one of them is a part's own.
  std::vector<std::string> path;
  bool trailing_slash = false;  ///< Of a path that is more than "/".
  std::string query;
  std::vector<std::string> captured;  ///< What the parts in braces of an operation's path are.
  Headers headers;
  std::string body;
  Peer peer;
  std::string client;   ///< Whose request it is, once that is known.
  std::string session;  ///< Which session it is about, for the log.
  std::string failure;  ///< What the client is not told, for the log.
  bool keep_alive = true;
  bool upgrade = false;  ///< To a WebSocket, and formed as RFC 6455 asks.
  /// While it is answered: whether who asked has hung up. Looks, and does not wait.
  std::function<bool()> gone;
};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  Headers headers = {};
};

/// "Too Many Requests"
[[nodiscard]] std::string_view reason_phrase(int status);

/// The head of an answer whose body comes after it: of so many bytes, or in chunks.
[[nodiscard]] std::string serialise_head(const Response& response, bool keep_alive,
                                         std::optional<std::uint64_t> length);

/// The answer as bytes. A HEAD's has no body, only its length.
[[nodiscard]] std::string serialise(const Response& response, bool keep_alive, bool head_only);

/// Splits and decodes the path of a target. False when it has a broken escape or a NUL.
[[nodiscard]] bool split_target(std::string_view target, Request& request);

/// Percent-decoded, with "+" for a blank; nothing when an escape is broken or stands for NUL.
[[nodiscard]] std::optional<std::string> query_decoded(std::string_view text);

/// Whether two names of fields, or values that compare so, are the same.
[[nodiscard]] bool same_name(std::string_view one, std::string_view other);

/// Whether a comma-separated list has this word.
[[nodiscard]] bool lists_word(std::string_view list, std::string_view word);

/// Without blanks and tabs at either end.
[[nodiscard]] std::string_view trim(std::string_view text);

}  // namespace belljar::api
