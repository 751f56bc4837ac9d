#include "launcher/service/jobs.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "launcher/service/channel.hpp"
#include "launcher/service/helper_process.hpp"
#include "launcher/service/message.hpp"
#include "policy/json_tree.hpp"

namespace belljar::service {
namespace {

/// A helper has read what a session made. So what it says is looked at like anything else.
std::optional<bool> kind_of_answer(const std::string& body) {
  policy::Findings findings;
  const auto tree = policy::parse_json(body, 0, policy::Comments::kRefused, findings);
  if (!tree || tree->members.size() != 1 || !findings.empty()) return std::nullopt;
  const std::string& key = tree->members.front().key;
  if (tree->members.front().value.kind != policy::Node::Kind::kObject) return std::nullopt;
  if (key == "ok") return true;
  return key == "error" ? std::optional(false) : std::nullopt;
}

Answer failed_answer(Fault fault) { return {error_body(fault), {}, false}; }

Answer read_answer(int socket, bool killed, std::chrono::seconds limit) {
  Received received = receive(socket, kLargestMessage);
  if (received.kind == Received::Kind::kMessage)
    if (const auto ok = kind_of_answer(received.text)) {
      Answer answer{std::move(received.text), {}, *ok};
      if (!received.descriptors.empty())
        answer.descriptor = std::move(received.descriptors.front());
      return answer;
    }
  if (killed)
    return failed_answer(
        {Code::kTimeout, "it was given up after " + std::to_string(limit.count()) + " s", 0});
  return failed_answer({Code::kSystem, "the helper ended without an answer", 0});
}

}  // namespace

bool Jobs::add(Job job) {
  if (running_.size() >= kMostAtOnce) {
    if (waiting_.size() >= kMostWaiting) return false;
    waiting_.push_back(std::move(job));
    return true;
  }
  start(std::move(job));
  return true;
}

void Jobs::help(const Job& job, sys::UniqueFd answer) const {
  std::vector<int> kept = job.kept;
  kept.push_back(answer.get());
  if (!close_all_but(kept)) _exit(1);
  if (job.uid) become_session(pool_, *job.uid);
  const Outcome<Finding> found = job.work();
  const std::string body = found ? "{\"ok\":" + found->json + "}" : error_body(found.error());
  const int fd = found ? found->descriptor.get() : -1;
  const int error = send_message(answer.get(), body, {&fd, fd < 0 ? 0U : 1U});
  _exit(error == 0 ? 0 : 1);
}

void Jobs::start(Job job) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    return job.done(failed_answer(call_failed(errno, "make a socket for a helper").value()));
  sys::UniqueFd ours(ends[0]), theirs(ends[1]);
  const pid_t service = getpid();
  const pid_t pid = fork();
  if (pid < 0) return job.done(failed_answer(call_failed(errno, "fork a helper").value()));
  if (pid == 0) {
    die_with(service);
    help(job, std::move(theirs));
  }
  // The helper has them now.
  job.owned.clear();
  const Clock::time_point deadline = Clock::now() + job.limit;
  running_.push_back({pid, std::move(ours), deadline, false, std::move(job)});
}

void Jobs::start_waiting() {
  while (!waiting_.empty() && running_.size() < kMostAtOnce) {
    Job next = std::move(waiting_.front());
    waiting_.pop_front();
    start(std::move(next));
  }
}

bool Jobs::ended(pid_t pid) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [pid](const Running& running) { return running.pid == pid; });
  if (found == running_.end()) return false;
  Running running = std::move(*found);
  running_.erase(found);
  running.job.done(read_answer(running.answer.get(), running.killed, running.job.limit));
  start_waiting();
  return true;
}

void Jobs::expire() {
  const Clock::time_point now = Clock::now();
  for (Running& running : running_) {
    if (running.killed || running.deadline > now) continue;
    // Not reaped yet, so that the number is still its own.
    kill(running.pid, SIGKILL);
    running.killed = true;
  }
}

int Jobs::next_deadline_ms() const {
  std::optional<Clock::time_point> next;
  for (const Running& running : running_)
    if (!running.killed && (!next || running.deadline < *next)) next = running.deadline;
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
  return static_cast<int>(std::max<std::chrono::milliseconds::rep>(left.count(), 0));
}

std::vector<pid_t> Jobs::processes() const {
  std::vector<pid_t> found;
  for (const Running& running : running_) found.push_back(running.pid);
  return found;
}

void Jobs::kill_all() {
  for (const Running& running : running_) kill(running.pid, SIGKILL);
  waiting_.clear();
}

}  // namespace belljar::service
