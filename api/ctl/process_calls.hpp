// Calls on one process, as more than one verb makes them.
#pragma once

#include <csignal>
#include <string>

#include "api/ctl/client.hpp"
#include "api/ctl/terminal.hpp"

namespace belljar::ctl {

struct ProcessName {
  std::string session, process;
  [[nodiscard]] std::string path() const { return process_path(session, process); }
};

/// "TERM", or 15.
[[nodiscard]] Done send_signal(const Client& client, const ProcessName& name, const Json& signal,
                               const std::string& target);
/// TERM, the session's grace, KILL of its whole tree. Waits until it has ended.
[[nodiscard]] Done end_process(const Client& client, const ProcessName& name);
/// Waits for its end, however long and over however many connections; the process.
[[nodiscard]] Outcome<Json> wait_for_end(const Client& client, const ProcessName& name);
/// A 404 about the process says what there is instead.
[[nodiscard]] Failure explained(Failure failure, const ProcessName& name);

/// Passes on what ends programs, to a command that was started here: each signal as it comes, and
/// the third makes an end.
class SignalForwarder {
 public:
  SignalForwarder(const Client& client, ProcessName name, const Signals& signals)
      : client_(client), name_(std::move(name)), signals_(signals) {}
  void forward_what_came();
  void forward(int number);
  [[nodiscard]] Watch watch() {
    return {signals_.descriptor(), [this] {
              forward_what_came();
              return true;
            }};
  }

 private:
  const Client& client_;
  ProcessName name_;
  const Signals& signals_;
  int count_ = 0;
};

/// Hands our standard input to a process, each byte once, from a thread of its own, which ends with
/// this program.
void pump_input(const Client& client, const ProcessName& name);

}  // namespace belljar::ctl
