#include "api/ctl/process_calls.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "policy/base/result.hpp"

namespace belljar::ctl {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10;

/// The process will take no more, which is nobody's failure.
bool has_ended(const Failure& failure) {
  return failure.kind == FailureKind::kProblem && failure.status == 409;
}

/// Writes `bytes` at `offset`: again where the connection breaks, which types nothing twice.
Done write_at(const Client& client, const ProcessName& name, std::string bytes,
              std::uint64_t offset) {
  Call call("POST", name.path() + "/stdin?offset=" + std::to_string(offset));
  call.body = std::move(bytes);
  call.content_type = "application/octet-stream";
  call.silence.reset();  // It answers when the process has taken all of it.
  Patience patience;
  for (;;) {
    const Outcome<Json> answer = client.ask(call);
    if (answer) return {};
    if (!patience.again(answer.error())) return tl::unexpected(answer.error());
  }
}

Done close_input(const Client& client, const ProcessName& name) {
  Patience patience;
  for (;;) {
    const Outcome<Json> answer = client.ask(Call("POST", name.path() + "/stdin/close"));
    if (answer) return {};
    if (!patience.again(answer.error())) return tl::unexpected(answer.error());
  }
}

Done pump(const Client& client, const ProcessName& name) {
  std::string piece(kPiece, '\0');
  for (std::uint64_t offset = 0;;) {
    const ssize_t got = read(STDIN_FILENO, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno != EIO) return call_failed(errno, "read standard input");
    if (got <= 0) return close_input(client, name);
    const auto size = static_cast<std::size_t>(got);
    BELLJAR_CHECK(write_at(client, name, piece.substr(0, size), offset));
    offset += size;
  }
}

}  // namespace

Done send_signal(const Client& client, const ProcessName& name, const Json& signal,
                 const std::string& target) {
  BELLJAR_TRY(client.post(name.path() + "/signal", {{"signal", signal}, {"target", target}}));
  return {};
}

Done end_process(const Client& client, const ProcessName& name) {
  const Answer answer = BELLJAR_TRY(client.call(Call("DELETE", name.path())));
  if (answer.status != 202) return {};
  BELLJAR_TRY(wait_for_end(client, name));
  return {};
}

Outcome<Json> wait_for_end(const Client& client, const ProcessName& name) {
  Call call("GET", name.path() + "?wait=30s");
  call.silence = std::chrono::seconds(60);
  Patience patience;
  for (bool reached = false;;) {
    Outcome<Json> process = client.ask(call);
    if (process && text_of(*process, "state") == "ended") return process;
    if (process) {
      reached = true;
      patience.settle();
    } else if (!reached || !patience.again(process.error())) {
      return tl::unexpected(explained(std::move(process).error(), name));
    }
  }
}

Failure explained(Failure failure, const ProcessName& name) {
  if (failure.status == 404 && failure.remedy.empty())
    failure.remedy = "belljarctl ps --all lists the sessions, belljarctl ps --all " + name.session +
                     " its processes";
  if (failure.code == "writer_present")
    failure.remedy = "--takeover takes its input over, --read-only leaves it alone";
  return failure;
}

void SignalForwarder::forward_what_came() {
  while (const auto number = signals_.next()) forward(*number);
}

void SignalForwarder::forward(int number) {
  constexpr int kPatience = 3;
  const Done sent = ++count_ < kPatience ? send_signal(client_, name_, number, "group")
                                         : end_process(client_, name_);
  if (!sent && !has_ended(sent.error())) std::fputs(failure_text(sent.error()).c_str(), stderr);
}

void pump_input(const Client& client, const ProcessName& name) {
  std::thread([client, name] {
    const Done pumped = pump(client, name);
    if (pumped || has_ended(pumped.error())) return;
    // A command that is told nothing would wait for ever; told of an end, it would take the part
    // for the whole.
    say("standard input is lost, so the command is ended:");
    std::fputs(failure_text(pumped.error()).c_str(), stderr);
    (void)end_process(client, name);
  }).detach();
}

}  // namespace belljar::ctl
