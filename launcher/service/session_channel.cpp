#include "launcher/service/session_channel.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "policy/base/tighter.hpp"

namespace belljar::service {
namespace {

using launcher::Cause;
using launcher::Record;
using Json = nlohmann::ordered_json;

/// Words for a client that does not read.
constexpr std::size_t kMostUnsent = 4096;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

SessionChannel::SessionChannel(sys::UniqueFd socket) : socket_(std::move(socket)) {
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
}

void SessionChannel::send(std::string text, Descriptors beside) {
  unsent_.push_back({std::move(text), std::move(beside)});
  flush();
  lost_ |= unsent_.size() > kMostUnsent;
}

void SessionChannel::flush() {
  while (!unsent_.empty()) {
    std::vector<int> beside;
    for (const sys::UniqueFd& fd : unsent_.front().beside) beside.push_back(fd.get());
    const int error = send_message(socket_.get(), unsent_.front().text, beside);
    if (error == EAGAIN) return;
    lost_ |= error != 0;
    if (error != 0) return;
    unsent_.pop_front();
  }
}

void SessionChannel::started(const SessionStart& start) {
  Json event{{"event", "started"}, {"pid", start.pid}, {"back_end", start.back_end}};
  event["degraded"] = Json::array();
  for (const launcher::Degraded& item : start.degraded)
    event["degraded"].push_back({{"control", item.control}, {"what", item.what}});
  event["policy_digest"] = start.policy_digest;
  const policy::Limits& limits = start.limits;
  event["wall_time_ms"] = limits.wall_time ? Json(limits.wall_time->count()) : Json();
  event["output"] = limits.output ? Json(*limits.output) : Json();
  event["fixed_variables"] = start.fixed_variables;
  event["plan_us"] = start.plan_time.count();
  event["setup_us"] = start.setup_time.count();
  send(dump(event));
}

void SessionChannel::told(const char* event, std::uint32_t process) {
  send(dump({{"event", event}, {"process", process}}));
}

void SessionChannel::ended(std::uint32_t process, const Record& record) {
  send(R"({"event":"ended","process":)" + std::to_string(process) + R"(,"record":)" +
       record.json() + "}");
}

void SessionChannel::over(const Record& record) {
  const timeval patience{5, 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) & ~O_NONBLOCK);
  unsent_.push_back({R"({"event":"over","record":)" + record.json() + "}", {}});
  for (const Unsent& word : unsent_)
    if (::send(socket_.get(), word.text.data(), word.text.size(), MSG_NOSIGNAL) < 0) return;
}

void SessionChannel::answer(std::uint64_t id, const Json& ok, Descriptors beside) {
  send(answer_text(id, dump({{"ok", ok}})), std::move(beside));
}

void SessionChannel::decline(std::uint64_t id, const Fault& fault) {
  send(answer_text(id, error_body(fault)));
}

void SessionChannel::not_started(std::uint64_t id, const launcher::SetupFailure& failure,
                                 int exit_code) {
  Json error{{"code", "sandbox"}, {"message", failure.reason}, {"exit_code", exit_code}};
  error["setup"] = Json::parse(launcher::setup_text(failure));
  send(answer_text(id, dump({{"error", std::move(error)}})));
}

std::optional<SessionRequest> SessionChannel::next(Descriptors& beside) {
  for (;;) {
    Received received = receive(socket_.get(), kLargestMessage);
    if (received.kind == Received::Kind::kNothing) return std::nullopt;
    auto request = read_session_request(received.text);
    lost_ |= received.kind != Received::Kind::kMessage || (!request && !request.error().id);
    if (lost_) return std::nullopt;
    if (!request) {
      decline(*request.error().id, request.error().fault);
      continue;
    }
    const std::size_t wanted = descriptors_of(request->demand);
    beside = std::move(received.descriptors);
    if (!received.lost_descriptors && beside.size() == wanted) return *std::move(request);
    decline(request->id, {Code::kInvalid, "expected " + std::to_string(wanted) +
                                              " descriptors beside the message"});
  }
}

std::optional<std::chrono::milliseconds> wall_time_of(const Exec& exec,
                                                      const policy::Limits& limits,
                                                      bool stands_by) {
  std::optional<std::chrono::milliseconds> asked;
  if (exec.wall_time_ms) asked = std::chrono::milliseconds(*exec.wall_time_ms);
  return stands_by ? tighter(asked, limits.wall_time) : asked;
}

std::optional<Fault> check_exec(const Exec& exec, std::uint32_t last, const Descriptors& streams) {
  if (exec.process <= last)
    return Fault{Code::kExists,
                 "process: expected a number above " + std::to_string(last) + ", the last one"};
  for (const sys::UniqueFd& stream : streams)
    if (const Outcome<void> may = check_stream(stream.get()); !may) return may.error();
  return std::nullopt;
}

Outcome<void> check_stream(int fd) {
  struct stat about {};
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fstat(fd, &about) != 0) return call_failed(errno, "look at a descriptor");
  if (S_ISDIR(about.st_mode) || (flags & O_PATH) != 0)
    return refuse(Code::kInvalid, "a directory or an O_PATH descriptor is no stream");
  return {};
}

void note_end(Record& record, const ProcessEnd& end, const policy::Limits& limits, bool filtered) {
  record.usage.user = end.user;
  record.usage.system = end.system;
  record.usage.max_rss_of_one_process_kib = end.max_rss_kib;
  if (WIFEXITED(end.status)) {
    record.cause = Cause::kExited;
    record.exit_code = WEXITSTATUS(end.status);
    return;
  }
  record.signal = WTERMSIG(end.status);
  record.cause = launcher::cause_of_signal(*record.signal, end.user + end.system, limits, filtered)
                     .value_or(Cause::kSignaled);
}

void note_wanted(Record& record, std::optional<Cause> wanted) {
  if (!wanted || (!record.signal && record.cause != Cause::kLost)) return;
  record.cause = *wanted;
  if (record.cause == Cause::kKilled)
    record.killed_by = "client";
  else
    record.limits.emplace_back(launcher::cause_name(record.cause));
}

}  // namespace belljar::service
