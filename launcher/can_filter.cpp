#include "launcher/can_filter.hpp"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/syscall.h>

#include <array>
#include <vector>

#include "launcher/record.hpp"
#include "launcher/seccomp/evaluate.hpp"

namespace belljar::launcher {
namespace {

/// The ways to make one call, the usual one first.
using Ways = std::vector<seccomp_data>;

/// Some place of the command's memory: a filter cannot look there.
constexpr std::uint64_t kSomewhere = 0x1000;

seccomp_data call_data(int number, const std::array<std::uint64_t, 4>& arguments) {
  seccomp_data data{};
  data.nr = number;
  data.arch = kNativeArchitecture;
  for (std::size_t i = 0; i < arguments.size(); ++i) data.args[i] = arguments[i];
  return data;
}

/// What judges the payload's calls; null where nothing does.
const SeccompFilter* filter_of(const Plan& plan) {
  for (const Step& step : plan.steps)
    if (const auto* install = std::get_if<InstallFilter>(&step.action); install != nullptr) {
      if (!install->listens) return &install->filter;
      return install->judged ? &*install->judged : nullptr;
    }
  return nullptr;
}

std::string verdict_text(std::uint32_t value) {
  return (value & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO
             ? errno_name(static_cast<int>(value & SECCOMP_RET_DATA))
             : "SIGSYS";
}

/// What happens to the first of the ways; nothing where one of them passes.
std::optional<FilterRefusal> refusal_of(const Plan& plan, const char* call, const Ways& ways) {
  const SeccompFilter* filter = filter_of(plan);
  if (filter == nullptr) return std::nullopt;
  std::optional<FilterRefusal> first;
  for (const seccomp_data& data : ways) {
    const std::optional<Evaluation> found = evaluate(filter->instructions(), data);
    const std::uint32_t value = found ? found->value : SECCOMP_RET_KILL_PROCESS;
    const std::uint32_t action = value & SECCOMP_RET_ACTION_FULL;
    if (action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG) return std::nullopt;
    if (!first) first = FilterRefusal{call, verdict_text(value)};
  }
  return first;
}

Ways ways_to_open(bool write) {
  constexpr std::uint64_t kHere = static_cast<std::uint64_t>(AT_FDCWD), kMode = 0666;
  std::vector<unsigned> flags = {O_RDONLY};
  if (write) flags = {O_WRONLY, O_RDWR, O_WRONLY | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC};
  Ways ways;
  for (const unsigned more : {0U, unsigned{O_CLOEXEC}})
    for (const unsigned wanted : flags) {
      ways.push_back(call_data(SYS_openat, {kHere, kSomewhere, wanted | more, kMode}));
#ifdef SYS_open
      ways.push_back(call_data(SYS_open, {kSomewhere, wanted | more, kMode}));
#endif
    }
  // Its flags lie in memory.
  ways.push_back(call_data(SYS_openat2, {kHere, kSomewhere, kSomewhere, /*size=*/24}));
  return ways;
}

Ways ways_to_execute() {
  return {call_data(SYS_execve, {kSomewhere, kSomewhere, kSomewhere}),
          call_data(SYS_execveat,
                    {static_cast<std::uint64_t>(AT_FDCWD), kSomewhere, kSomewhere, kSomewhere})};
}

}  // namespace

std::optional<FilterRefusal> filter_refuses(const Plan& plan, Verb verb) {
  if (verb == Verb::kExec) return refusal_of(plan, "execve", ways_to_execute());
  return refusal_of(plan, "openat", ways_to_open(verb == Verb::kWrite));
}

std::optional<FilterRefusal> filter_refuses(const Plan& plan, const Endpoint& to) {
  Ways sockets;
  for (const unsigned flags : {0U, unsigned{SOCK_CLOEXEC}, unsigned{SOCK_NONBLOCK},
                               unsigned{SOCK_CLOEXEC} | unsigned{SOCK_NONBLOCK}})
    for (const unsigned protocol : {0U, unsigned{IPPROTO_TCP}})
      sockets.push_back(call_data(SYS_socket, {static_cast<unsigned>(to.family()),
                                               unsigned{SOCK_STREAM} | flags, protocol}));
  if (auto refused = refusal_of(plan, "socket", sockets)) return refused;
  // On the first descriptor that a program gets.
  return refusal_of(plan, "connect", {call_data(SYS_connect, {3, kSomewhere, to.size})});
}

}  // namespace belljar::launcher
