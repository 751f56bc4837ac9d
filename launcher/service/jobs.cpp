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

/// What is killed ends at once, unless it waits for a file system that does not answer.
constexpr std::chrono::seconds kDying{2};

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

bool Jobs::has_room(const Job& job) const {
  const auto is_at_work = [](const Running& one) { return one.stage != Stage::kStuck; };
  const auto of_same = [&job](const Running& one) { return one.job.workspace == job.workspace; };
  const auto at_work = std::count_if(running_.begin(), running_.end(), is_at_work);
  const auto same = std::count_if(running_.begin(), running_.end(), of_same);
  return running_.size() < kMostProcesses && static_cast<std::size_t>(at_work) < kMostAtOnce &&
         (job.workspace.empty() || static_cast<std::size_t>(same) < kMostOfOne);
}

bool Jobs::add(Job job) {
  if (has_room(job)) {
    start(std::move(job));
    return true;
  }
  const auto of_same = [&job](const Job& one) { return one.workspace == job.workspace; };
  const auto same = std::count_if(waiting_.begin(), waiting_.end(), of_same);
  if (waiting_.size() >= kMostWaiting ||
      (!job.workspace.empty() && static_cast<std::size_t>(same) >= kMostWaitingOfOne))
    return false;
  waiting_.push_back(std::move(job));
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
  running_.push_back({pid, std::move(ours), deadline, Stage::kAtWork, std::move(job)});
}

void Jobs::start_waiting() {
  for (;;) {
    // Afresh each time: what fails to start may have asked for more.
    const auto next = std::find_if(waiting_.begin(), waiting_.end(),
                                   [this](const Job& job) { return has_room(job); });
    if (next == waiting_.end()) return;
    Job job = std::move(*next);
    waiting_.erase(next);
    start(std::move(job));
  }
}

bool Jobs::ended(pid_t pid) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [pid](const Running& running) { return running.pid == pid; });
  if (found == running_.end()) return false;
  Running running = std::move(*found);
  running_.erase(found);
  running.job.done(
      read_answer(running.answer.get(), running.stage != Stage::kAtWork, running.job.limit));
  start_waiting();
  return true;
}

void Jobs::expire() {
  const Clock::time_point now = Clock::now();
  bool given = false;
  for (Running& running : running_) {
    if (running.stage == Stage::kStuck || running.deadline > now) continue;
    if (running.stage == Stage::kAtWork) {
      // Not reaped yet, so that the number is still its own.
      kill(running.pid, SIGKILL);
      running.stage = Stage::kKilled;
      running.deadline = now + kDying;
    } else {
      running.stage = Stage::kStuck;
      given = true;
    }
  }
  if (given) start_waiting();
}

int Jobs::next_deadline_ms() const {
  std::optional<Clock::time_point> next;
  for (const Running& running : running_)
    if (running.stage != Stage::kStuck && (!next || running.deadline < *next))
      next = running.deadline;
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
