#include "api/ctl/ending.hpp"

#include <sys/prctl.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

namespace belljar::ctl {
namespace {

struct Words {
  std::string_view cause, words;
};

/// `setup`, `signaled` and `killed` have more to say.
constexpr std::array<Words, 14> kWords = {{
    {"wall_time", "was ended at its wall time"},
    {"cpu_time", "was ended at its CPU time"},
    {"memory", "was ended when it needed more memory than its limit"},
    {"processes", "failed after it was refused a process beyond its limit"},
    {"output", "was ended for writing more output than it may"},
    {"disk", "held more on disk than it may"},
    {"file_size", "was ended for writing a file beyond its size"},
    {"syscall", "was killed by the system call filter (SIGSYS)"},
    {"expired", "was ended with its session, which had reached its age"},
    {"idle", "was ended with its session, which nobody used"},
    {"owner_gone", "was ended with its session, whose owner has gone"},
    {"workspace_gone", "was ended with its session, whose workspace has gone"},
    {"network_lost", "was ended with its session, whose network was lost"},
    {"lost", "is gone, and nobody saw how it ended"},
}};

std::optional<int> integer_of(const Json& tree, const char* key) {
  const Json& member = member_of(tree, key);
  if (!member.is_number_integer()) return std::nullopt;
  return member.get<int>();
}

std::string signal_text(int number) {
  const char* name = sigabbrev_np(number);
  return "SIG" + (name == nullptr ? std::to_string(number) : std::string(name));
}

/// Records have "SIGKILL", and "SIG34" where there is no name; processes have the number.
std::optional<int> signal_of(const Json& record) {
  if (const auto number = integer_of(record, "signal")) return number;
  const std::string name = text_of(record, "signal");
  for (int number = 1; number <= SIGRTMAX; ++number)
    if (name == signal_text(number)) return number;
  return std::nullopt;
}

std::string setup_words(const Json& record) {
  const Json& setup = member_of(record, "setup");
  std::string words = "was not started";
  for (const char* key : {"step", "reason", "errno", "policy"})
    if (const std::string text = text_of(setup, key); !text.empty()) words += ": " + text;
  if (const std::string remedy = text_of(setup, "remedy"); !remedy.empty())
    words += "; try: " + remedy;
  return words;
}

}  // namespace

int exit_status(const Json& record) {
  const std::string cause = text_of(record, "cause");
  if (cause == "wall_time") return 124;
  // Whether it was killed for it or had just ended by itself is chance.
  if (cause == "output" || cause == "disk") return 128 + SIGKILL;
  if (const auto code = integer_of(record, "exit_code")) return *code;
  if (const auto signal = signal_of(record)) return 128 + *signal;
  return kFailed;
}

std::string why_it_ended(const Json& record) {
  const std::string cause = text_of(record, "cause");
  if (cause == "exited") return {};
  if (cause == "setup") return "the command " + setup_words(record);
  for (const Words& known : kWords)
    if (known.cause == cause) return "the command " + std::string(known.words);
  std::string words = "the command ended: " + (cause.empty() ? "no cause is told" : cause);
  if (cause == "signaled") words = "the command died of a signal";
  if (cause == "killed") words = "the command was killed";
  if (const auto signal = signal_of(record)) words += " (" + signal_text(*signal) + ')';
  if (const std::string by = text_of(record, "by"); !by.empty()) words += " by " + by;
  return words;
}

int end_as(const Json& record) {
  if (const std::string why = why_it_ended(record); !why.empty()) say(why);
  const auto number = signal_of(record);
  const bool asked = number && (*number == SIGINT || *number == SIGQUIT || *number == SIGTERM);
  if (!asked || text_of(record, "cause") != "signaled") return exit_status(record);
  std::fflush(nullptr);
  prctl(PR_SET_DUMPABLE, 0);  // No core for a signal that was the command's.
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, *number);
  signal(*number, SIG_DFL);
  raise(*number);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  return exit_status(record);
}

}  // namespace belljar::ctl
