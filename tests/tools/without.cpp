// belljar_without: belljar, with the steps of one control left out. It proves the tests: a control
// that can be left out without a probe finding an open door is a control that nobody tests.
//
//   belljar_without CONTROL[:WORDS][,read-back] belljar run ...
//
// Left out is what the control planned, or only the steps whose text begins with WORDS, and every
// step that reads back (with ",read-back" those stay). "nothing" leaves out nothing. Some steps
// cannot go without the launch going with them; what stands in for leaving them out is said below.
//
// A self-test launches the program that it is part of, so belljar_without CONTROL belljar selftest
// tries a sandbox that lacks the control; inside, "probe" is belljar's own.
//
// The program is the objects of belljar with two calls wrapped by the linker: main() and launch().
// Nothing in belljar itself knows of it.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/controls/control.hpp"
#include "launcher/launch.hpp"

extern "C" int __real_main(int argc, char** argv);
extern "C" int __wrap_main(int argc, char** argv);

namespace belljar::launcher {

#define LAUNCH_SYMBOL                                                                           \
  "_ZN7belljar8launcher6launchERKNS0_4PlanERKNS_6policy6PolicyERKNS0_4HostERKNS0_6EventsEPNS0_" \
  "9AttendantE"
Record real_launch(const Plan& plan, const policy::Policy& policy, const Host& host,
                   const Events& events, Attendant* attendant) asm("__real_" LAUNCH_SYMBOL);
Record wrapped_launch(const Plan& plan, const policy::Policy& policy, const Host& host,
                      const Events& events, Attendant* attendant) asm("__wrap_" LAUNCH_SYMBOL);

namespace {

struct LeftOut {
  std::string control;
  std::string words;
  bool read_back_stays = false;
};

LeftOut left_out;
std::vector<int> callers_descriptors;

template <class... Actions>
bool is_one_of(const Step& step) {
  return (std::holds_alternative<Actions>(step.action) || ...);
}

bool reads_back(const Step& step) {
  return is_one_of<CheckNamespaces, CheckInit, CheckPayload>(step);
}

/// Steps without which there is no launch: a namespace without a map can hold no file, and a plan
/// without a root or a program runs nothing.
bool is_needed(const Step& step) {
  return is_one_of<CreateNamespaces, MapIds, AttachRoot, BindMount, MountTmpfs, MountProc, MountDev,
                   MakeDirectory, MakeSymlink, MakeFile, PivotRoot, NewProcessGroup, Exec>(step);
}

bool is_meant(const Step& step) {
  return step.control == left_out.control && step.text().starts_with(left_out.words);
}

bool goes(const Step& step) {
  if (reads_back(step)) return !left_out.read_back_stays && left_out.control != "nothing";
  if (!is_meant(step) || is_one_of<MountProc, MountDev>(step)) return false;
  return !left_out.words.empty() || !is_needed(step);
}

/// In place of a step that is needed: without what it confines, or with what the host has there.
void loosen(Step& step) {
  if (auto* create = std::get_if<CreateNamespaces>(&step.action)) {
    // The network's namespace is made together with the others.
    if (left_out.control == "network") create->flags &= ~std::uint64_t{CLONE_NEWNET};
    if (is_meant(step))
      create->flags &= ~std::uint64_t{CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP};
  }
  if (!is_meant(step)) return;
  if (auto* bind = std::get_if<BindMount>(&step.action)) bind->flags = 0;
  if (const auto* proc = std::get_if<MountProc>(&step.action))
    step.action = BindMount{"/proc", proc->target, 0, false, false, proc->may_create};
  else if (const auto* dev = std::get_if<MountDev>(&step.action))
    step.action = BindMount{"/dev", dev->target, 0, false, false, dev->may_create};
}

/// Those that belljar was started with reach the command, as if nothing had marked them.
void give_descriptors_back() {
  for (int fd : callers_descriptors) fcntl(fd, F_SETFD, 0);
}

}  // namespace

Record wrapped_launch(const Plan& plan, const policy::Policy& policy, const Host& host,
                      const Events& events, Attendant* attendant) {
  Plan changed = plan;
  policy::Policy loose = policy;
  changed.steps.erase(std::remove_if(changed.steps.begin(), changed.steps.end(), goes),
                      changed.steps.end());
  std::for_each(changed.steps.begin(), changed.steps.end(), loosen);
  if (left_out.control == "time_limits" && left_out.words.empty()) loose.limits.wall_time.reset();
  if (left_out.control == "stdio") give_descriptors_back();
  if (left_out.control == "environment") {
    changed.environment.clear();
    for (char** entry = environ; *entry != nullptr; ++entry)
      changed.environment.emplace_back(*entry);
  }
  return real_launch(changed, loose, host, events, attendant);
}

namespace {

bool understand(std::string_view word) {
  if (const auto comma = word.find(','); comma != std::string_view::npos) {
    if (word.substr(comma) != ",read-back") return false;
    left_out.read_back_stays = true;
    word = word.substr(0, comma);
  }
  const auto colon = word.find(':');
  left_out.control = word.substr(0, colon);
  if (colon != std::string_view::npos) left_out.words = word.substr(colon + 1);
  return left_out.control == "nothing" || find_control(left_out.control) != nullptr;
}

void look_at_descriptors() {
  DIR* list = opendir("/proc/self/fd");
  if (list == nullptr) return;
  while (const dirent* entry = readdir(list))
    if (const int fd = std::atoi(entry->d_name); fd > 2 && fd != dirfd(list))
      callers_descriptors.push_back(fd);
  closedir(list);
}

}  // namespace
}  // namespace belljar::launcher

int __wrap_main(int argc, char** argv) {
  // A self-test's own command, inside.
  if (argc > 1 && std::string_view(argv[1]) == "probe") return __real_main(argc, argv);
  if (argc < 3 || !belljar::launcher::understand(argv[1])) {
    std::fputs("usage: belljar_without CONTROL[:WORDS][,read-back] belljar ...\n", stderr);
    return 2;
  }
  belljar::launcher::look_at_descriptors();
  return __real_main(argc - 2, argv + 2);
}
