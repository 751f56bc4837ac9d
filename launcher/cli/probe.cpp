// `belljar probe [NAME[=VALUE]...]`, internal: tries, from inside a sandbox, what the controls must
// refuse, and looks for what must be so.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <string_view>

#include "launcher/attempts.hpp"
#include "launcher/cli/options.hpp"
#include "launcher/controls/control.hpp"
#include "launcher/excess.hpp"
#include "launcher/network/reach.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/read_file.hpp"

namespace belljar::launcher {

namespace {

/// What `belljar probe NAME=VALUE` was asked for; without a value for a probe.
struct Asked {
  std::string name;
  std::string value;
};

Asked understand(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return {word, {}};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

template <class Item>
const Item* find(std::span<const Item> (*of)(const Control&), const std::string& name) {
  for (const Control* control : controls())
    for (const Item& item : of(*control))
      if (item.name == name) return &item;
  return nullptr;
}

std::span<const Probe> probes_of(const Control& control) { return control.probes; }
std::span<const Fact> facts_of(const Control& control) { return control.facts; }

void say(std::string_view name, std::string_view verdict, std::string what = {}) {
  std::replace(what.begin(), what.end(), '\n', ' ');
  std::printf("%.*s %.*s%s%s\n", static_cast<int>(name.size()), name.data(),
              static_cast<int>(verdict.size()), verdict.data(), what.empty() ? "" : " ",
              what.c_str());
}

void look(const Fact& fact, const std::string& value) {
  say(fact.name, kTrying);
  const Seen seen = fact.look(value);
  const bool held = seen.verdict == Seen::Verdict::kHolds;
  say(fact.name,
      held                                      ? kHolds
      : seen.verdict == Seen::Verdict::kDiffers ? kDiffers
                                                : kUnseen,
      seen.what);
}

void attempt_it(const Probe& probe) {
  say(probe.name, kTrying);
  const int refusal = probe.attempt_it();
  say(probe.name, refusal == 0 ? kDoorOpen : errno_name(refusal));
}

/// What was asked for, in that order.
int answer(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const Asked asked = understand(word);
    const Fact* fact = find(facts_of, asked.name);
    const Probe* probe = find(probes_of, asked.name);
    if (fact == nullptr && probe == nullptr) {
      std::fprintf(stderr, "belljar: unknown probe %s\n", asked.name.c_str());
      return 2;
    }
    if (fact != nullptr)
      look(*fact, asked.value);
    else
      attempt_it(*probe);
  }
  return 0;
}

/// Whoever comes back from it was not ended.
int exceed(const std::string& limit) {
  for (const Excess& excess : excesses())
    if (excess.limit == limit) excess.commit();
  return 1;
}

int reach_out(std::vector<std::string> targets) {
  // Together with the launch, less than the self-test's three seconds.
  constexpr std::chrono::milliseconds kPatience{700};
  for (std::string& server : network::name_servers(sys::read_file(AT_FDCWD, "/etc/resolv.conf")))
    targets.push_back(std::move(server));
  for (const network::Reached& one : network::reach(targets, kPatience))
    say(one.target, one.verdict, one.said);
  return 0;
}

}  // namespace

int probe_command(const ProbeOptions& options) {
  if (!options.exceed.empty()) return exceed(options.exceed);
  if (!options.attempt.empty()) return std::puts(attempt(options.attempt).c_str()) < 0 ? 1 : 0;
  if (!options.reach.empty()) return reach_out(options.reach);
  // What the sandbox left open is looked for, not what belljar opened itself.
  close(sys::proc_directory());
  // Line by line: what the filter kills must not take the answers before it along.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  if (!options.names.empty()) return answer(options.names);
  for (const Control* control : controls())
    std::for_each(control->probes.begin(), control->probes.end(), attempt_it);
  return 0;
}

}  // namespace belljar::launcher
