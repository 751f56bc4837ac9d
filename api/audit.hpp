// The audit: a line of JSON for each session that is made or ends, each command, each refusal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/http/message.hpp"
#include "policy/base/unique_fd.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::api {

/// What a log may hold of a target: the path. Queries have tokens and data in them, those that go
/// to a server inside a session too.
[[nodiscard]] std::string_view logged_target(const Request& request);

/// Appends to a file, which may be none. Never waits: a line that cannot be written whole is lost,
/// and counted. Holds no environment, no arguments (their SHA-256 alone), no output, no tokens.
class Audit {
 public:
  explicit Audit(UniqueFd file) : file_(std::move(file)) {}

  void add(const supervisor::Event& event, const supervisor::Supervisor& supervisor);
  void refused(const Request& request, int status);
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  void write(const std::string& line);

  UniqueFd file_;
  std::uint64_t lost_ = 0;
};

}  // namespace belljar::api
