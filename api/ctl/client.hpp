// The daemon's /v1 as calls that answer with JSON, or with the failure that a person is told.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "api/ctl/connection.hpp"
#include "api/ctl/failure.hpp"

namespace belljar::ctl {

using Json = nlohmann::json;

/// One part of a path, percent-encoded.
[[nodiscard]] std::string path_part(std::string_view text);
/// "/v1/sessions/ID"
[[nodiscard]] std::string session_path(std::string_view session);
/// "/v1/sessions/ID/processes/PROCESS"
[[nodiscard]] std::string process_path(std::string_view session, std::string_view process);

/// Members of an object that is not to be trusted: empty, or 0, where there is none of that type.
[[nodiscard]] std::string text_of(const Json& tree, const char* key);
[[nodiscard]] std::uint64_t number_of(const Json& tree, const char* key);
/// Null where there is none.
[[nodiscard]] const Json& member_of(const Json& tree, const char* key);
/// On one line; what is no UTF-8 is replaced.
[[nodiscard]] std::string dumped(const Json& tree);

/// A key for one thing to be started, however often it has to be asked for.
[[nodiscard]] std::string fresh_key();

/// Whether and when to try again, of something that goes on for long.
class Patience {
 public:
  /// Waits a moment, longer each time. False: it is no matter of the connection, or has been for
  /// a minute.
  [[nodiscard]] bool again(const Failure& failure);
  /// It works again.
  void settle() { trouble_ = {}; }

 private:
  std::chrono::steady_clock::time_point trouble_;
  std::chrono::milliseconds pause_{0};
};

class Client {
 public:
  explicit Client(Address address) : address_(std::move(address)) {}

  /// A 2xx answer; any other is the failure.
  [[nodiscard]] Outcome<Answer> call(const Call& call) const;
  /// Its body as JSON; null where it is empty.
  [[nodiscard]] Outcome<Json> ask(const Call& call) const;
  [[nodiscard]] Outcome<Json> get(const std::string& target) const;
  [[nodiscard]] Outcome<Json> post(const std::string& target, const Json& body) const;
  /// Starts something once: asks again, under one key, where the answer is lost on its way.
  [[nodiscard]] Outcome<Json> start(const std::string& target, const Json& body,
                                    std::vector<Watch> watches = {}) const;

  [[nodiscard]] const Address& address() const { return address_; }

 private:
  Address address_;
};

}  // namespace belljar::ctl
