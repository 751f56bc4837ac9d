// exec, run, logs, wait, kill: one process of a session.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api/ctl/attach.hpp"
#include "api/ctl/bodies.hpp"
#include "api/ctl/commands.hpp"
#include "api/ctl/ending.hpp"
#include "api/ctl/follow.hpp"
#include "api/ctl/process_calls.hpp"
#include "policy/base/result.hpp"
#include "policy/base64.hpp"

namespace belljar::ctl {
namespace {

/// Of standard input that goes into a run's one request.
constexpr std::size_t kMostInput = std::size_t{16} << 20;

int descriptor_of(Stream stream) { return stream == Stream::kOut ? STDOUT_FILENO : STDERR_FILENO; }

/// Writes to our own streams, and remembers what went wrong.
class Writer {
 public:
  OutputLines::Taker taker() {
    return {[this](Stream stream, std::string_view bytes) {
              if (error_ == 0) error_ = write_all(descriptor_of(stream), bytes);
              return error_ == 0;
            },
            say_gap};
  }
  /// 0, or errno.
  [[nodiscard]] int error() const { return error_; }

 private:
  int error_ = 0;
};

Outcome<Json> exec_body(const ExecOptions& asked) {
  const bool keys = asked.terminal && asked.process.interactive;
  if (keys && isatty(STDIN_FILENO) != 1)
    return failed(FailureKind::kUsage, "-t with -i: standard input is no terminal",
                  "-i alone, for input from a file or a pipe");
  if (asked.background && (asked.process.interactive || asked.terminal || asked.json))
    return failed(FailureKind::kUsage, "--detach excludes -i, -t and --json");
  if (asked.json && (asked.process.interactive || asked.terminal))
    return failed(FailureKind::kUsage, "--json excludes -i and -t");
  Json body = BELLJAR_TRY(process_body(asked.process));
  if (asked.claim) body["claim"] = true;
  if (asked.process.interactive) body["stdin"] = "open";
  if (!asked.terminal) return body;
  const Size size = terminal_size(STDOUT_FILENO).value_or(Size{});
  body["tty"] = {{"cols", size.columns}, {"rows", size.rows}};
  const char* kind = std::getenv("TERM");
  if (kind != nullptr && !member_of(member_of(body, "env"), "TERM").is_string())
    body["env"]["TERM"] = kind;
  return body;
}

/// Starts it. A signal that comes meanwhile is the command's, once there is one; with the second
/// nobody waits for that.
Outcome<ProcessName> start_process(const Client& client, const std::string& session,
                                   const Json& body, const Signals& signals) {
  std::vector<int> came;
  const Watch watch{signals.descriptor(), [&] {
                      while (const auto number = signals.next())
                        if (*number != SIGWINCH && *number != SIGCONT) came.push_back(*number);
                      return came.size() < 2;
                    }};
  Outcome<Json> process = client.start(session_path(session) + "/processes", body, {watch});
  if (!process && came.size() > 1)
    process.error().remedy = "belljarctl ps " + session + ": the command may have been started";
  if (!process) return tl::unexpected(std::move(process).error());
  const Json& id = member_of(*process, "id");
  if (!id.is_number_integer())
    return failed(FailureKind::kBroken, "the answer to the start names no process");
  const ProcessName name{session, dumped(id)};
  SignalForwarder forwarder(client, name, signals);
  for (const int number : came) forwarder.forward(number);
  return name;
}

/// The command's output here, its signals there, until its end.
Outcome<int> stay_with(const Client& client, const ProcessName& name, const Signals& signals) {
  SignalForwarder forwarder(client, name, signals);
  Writer writer;
  Following following;
  following.session = name.session;
  following.process = name.process;
  following.watches.push_back(forwarder.watch());
  following.taker = writer.taker();
  const Outcome<std::optional<Json>> record = follow_output(client, following);
  if (!record) return tl::unexpected(explained(record.error(), name));
  if (*record) return end_as(**record);
  // Nobody reads what it writes any more: it has no reason to go on.
  BELLJAR_CHECK(end_process(client, name));
  if (writer.error() == EPIPE) return 128 + SIGPIPE;
  return call_failed(writer.error(), "write what the command has written");
}

/// One call that waits: for scripts.
Outcome<int> exec_as_json(const Client& client, const ExecOptions& asked, const Json& body) {
  Call call("POST", session_path(asked.session) + "/exec");
  call.body = dumped(body);
  call.content_type = "application/json";
  call.silence.reset();
  const Json answer = BELLJAR_TRY(client.ask(call));
  BELLJAR_CHECK(print(dumped(answer) + '\n'));
  const Json& record = member_of(answer, "record");
  return record.is_object() ? exit_status(record) : kFailed;
}

/// Of an answer that holds a stream as text or as base64.
Outcome<std::string> stream_of(const Json& answer, const std::string& name) {
  const Json& text = member_of(answer, name.c_str());
  if (text.is_string()) return text.get<std::string>();
  const auto bytes = policy::decode_base64(text_of(answer, (name + "_base64").c_str()));
  if (bytes) return *bytes;
  return failed(FailureKind::kBroken, "the answer's " + name + " is no base64");
}

Done print_streams(const Json& answer) {
  for (const Stream stream : {Stream::kOut, Stream::kErr}) {
    const std::string name(stream_name(stream));
    const std::string bytes = BELLJAR_TRY(stream_of(answer, name));
    const int error = write_all(descriptor_of(stream), bytes);
    if (error != 0 && error != EPIPE) return call_failed(error, "write " + name);
    const std::uint64_t missing = number_of(member_of(answer, "truncated"), name.c_str());
    if (missing > 0)
      say(name + ": " + std::to_string(missing) +
          " bytes of it are missing: the daemon keeps no more of a run");
  }
  return {};
}

}  // namespace

Outcome<int> exec(const Client& client, const ExecOptions& asked) {
  const Json body = BELLJAR_TRY(exec_body(asked));
  if (asked.json) return exec_as_json(client, asked, body);
  DetachKeys keys = BELLJAR_TRY(DetachKeys::parse(asked.detach_keys));
  signal(SIGPIPE, SIG_IGN);
  const Signals signals = BELLJAR_TRY(
      Signals::take(asked.terminal ? Signals::Which::kTerminal : Signals::Which::kEnding));
  const ProcessName name = BELLJAR_TRY(start_process(client, asked.session, body, signals));
  if (asked.background) {
    BELLJAR_CHECK(print(name.process + '\n'));
    return 0;
  }
  if (!asked.terminal) {
    if (asked.process.interactive) pump_input(client, name);
    return stay_with(client, name, signals);
  }
  Attaching attaching;
  attaching.name = name;
  attaching.keys = std::move(keys);
  attaching.input = asked.process.interactive;
  attaching.terminal = attaching.ours = true;
  return attach_to(client, attaching, signals);
}

Outcome<int> run(const Client& client, const RunOptions& asked) {
  Json body = BELLJAR_TRY(process_body(asked.process));
  BELLJAR_CHECK(add_session(body, asked.session));
  if (asked.process.interactive) {
    const std::string input = BELLJAR_TRY(read_whole("-", kMostInput));
    // "none" and "open" as words would mean something else.
    body["stdin"] = text_or_base64(input);
    if (body["stdin"].is_string()) body["stdin"] = {{"text", input}};
  }
  Call call("POST", "/v1/run");
  call.body = dumped(body);
  call.content_type = "application/json";
  call.silence.reset();  // It ends at its wall time; and when we hang up, by Ctrl-C too.
  const Json answer = BELLJAR_TRY(client.ask(call));
  const Json& record = member_of(answer, "record");
  if (!record.is_object())
    return failed(FailureKind::kBroken, "POST /v1/run: the answer has no record");
  if (asked.json) {
    BELLJAR_CHECK(print(dumped(answer) + '\n'));
    return exit_status(record);
  }
  signal(SIGPIPE, SIG_IGN);
  BELLJAR_CHECK(print_streams(answer));
  return end_as(record);
}

Outcome<int> logs(const Client& client, const LogsOptions& asked) {
  Writer writer;
  Following following;
  following.session = asked.session;
  following.process = asked.process;
  following.follow = asked.follow;
  following.taker = writer.taker();
  if (!asked.stream.empty())
    following.only = asked.stream == "stderr" ? Stream::kErr : Stream::kOut;
  if (asked.offset && !following.only)
    return failed(FailureKind::kUsage, "--offset is of one stream", "--stream stdout");
  if (asked.offset)
    (following.only == Stream::kErr ? following.from.err : following.from.out) = *asked.offset;
  const Outcome<std::optional<Json>> read = follow_output(client, following);
  if (!read)
    return tl::unexpected(explained(read.error(), ProcessName{asked.session, asked.process}));
  if (writer.error() != 0) return call_failed(writer.error(), "write what is in the log");
  return 0;
}

Outcome<int> wait(const Client& client, const WaitOptions& asked) {
  const Json process = BELLJAR_TRY(wait_for_end(client, ProcessName{asked.session, asked.process}));
  const Json& record = member_of(process, "record");
  return end_as(record.is_object() ? record : process);
}

Outcome<int> kill(const Client& client, const KillOptions& asked) {
  const ProcessName name{asked.session, asked.process};
  Done done;
  if (asked.signal.empty()) {
    done = end_process(client, name);
  } else {
    const bool number = asked.signal.find_first_not_of("0123456789") == std::string::npos;
    const Json signal =
        number && asked.signal.size() < 4 ? Json(std::stoul(asked.signal)) : Json(asked.signal);
    done = send_signal(client, name, signal, asked.target);
  }
  if (!done) return tl::unexpected(explained(done.error(), name));
  return 0;
}

}  // namespace belljar::ctl
