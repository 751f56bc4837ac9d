// The service's end of a session socket (docs/launch-service.md): what is read from it and said on
// it, whoever serves the session.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/record.hpp"
#include "launcher/service/channel.hpp"
#include "launcher/service/fault.hpp"
#include "launcher/service/session_message.hpp"
#include "launcher/sys/unique_fd.hpp"
#include "policy/policy.hpp"

namespace belljar::service {

using Descriptors = std::vector<sys::UniqueFd>;

/// What `started` tells.
struct SessionStart {
  pid_t pid = 0;  ///< On the host.
  std::string back_end;
  std::vector<launcher::Degraded> degraded;
  std::string policy_digest;
  /// Of which wall_time and output are told: the client holds commands to them.
  policy::Limits limits;
  std::map<std::string, std::string> fixed_variables;  ///< That no command may set otherwise.
  std::chrono::microseconds plan_time{0}, setup_time{0};
};

class SessionChannel {
 public:
  explicit SessionChannel(sys::UniqueFd socket);

  [[nodiscard]] int descriptor() const { return socket_.get(); }
  /// The client has gone, or does not read: it is to be taken for gone.
  [[nodiscard]] bool lost() const { return lost_; }
  /// Something waits for the client to read. `flush` sends what can be sent now.
  [[nodiscard]] bool waits() const { return !unsent_.empty(); }
  void flush();

  void started(const SessionStart& start);
  /// "stopped" or "continued".
  void told(const char* event, std::uint32_t process);
  void ended(std::uint32_t process, const launcher::Record& record);
  /// The last word, for which the client has 5 s.
  void over(const launcher::Record& record);

  void answer(std::uint64_t id, const nlohmann::ordered_json& ok, Descriptors beside = {});
  void decline(std::uint64_t id, const Fault& fault);
  /// The command could not be started.
  void not_started(std::uint64_t id, const launcher::SetupFailure& failure, int exit_code);

  /// Calls `act(id, demand, descriptors)` for each request that has come, until it says false or
  /// there is no more. What is no request is declined, or is the end of the client.
  template <class Act>
  void serve(Act&& act) {
    Descriptors beside;
    while (std::optional<SessionRequest> request = next(beside))
      if (!std::visit([&](const auto& demand) { return act(request->id, demand, beside); },
                      request->demand))
        return;
  }

 private:
  struct Unsent {
    std::string text;
    Descriptors beside;
  };

  void send(std::string text, Descriptors beside = {});
  [[nodiscard]] std::optional<SessionRequest> next(Descriptors& beside);

  sys::UniqueFd socket_;
  std::deque<Unsent> unsent_;
  bool lost_ = false;
};

/// What a command may have as stdin, stdout or stderr: a directory, or a path that is open for
/// nothing, would be a door to the host's files.
[[nodiscard]] Outcome<void> check_stream(int fd);

/// Why a command must not be started: its number has been used, or a stream is no stream.
[[nodiscard]] std::optional<Fault> check_exec(const Exec& exec, std::uint32_t last,
                                              const Descriptors& streams);

/// What a further command may take. The policy's own is each one's in a sandbox that stands by,
/// where no command of its own has it.
[[nodiscard]] std::optional<std::chrono::milliseconds> wall_time_of(const Exec& exec,
                                                                    const policy::Limits& limits,
                                                                    bool stands_by);

/// A process's end, as wait told it.
struct ProcessEnd {
  int status = 0;
  std::chrono::microseconds user{0}, system{0};
  std::int64_t max_rss_kib = 0;
};

/// Puts it into the record: exit code or signal, usage, and the limit or filter that explains it.
void note_end(launcher::Record& record, const ProcessEnd& end, const policy::Limits& limits,
              bool filtered);

/// For one that was killed for `wanted`. Whether it ended by itself just then cannot be told.
void note_wanted(launcher::Record& record, std::optional<launcher::Cause> wanted);

}  // namespace belljar::service
