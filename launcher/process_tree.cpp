#include "launcher/process_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/sys/proc.hpp"
#include "launcher/sys/process_status.hpp"
#include "launcher/sys/raw.hpp"
#include "launcher/sys/read_file.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {
namespace {

using sys::UniqueFd;

/// One that forks and exits without end is missed by a look now and then, so that one that finds
/// nothing proves little.
constexpr int kQuietLooks = 8;
/// A tree that is still found to grow after this time is killed as far as it is known.
constexpr std::chrono::seconds kLongestChase{2};

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  const int fd = openat(sys::proc_directory(), path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(fd < 0 ? nullptr : fdopendir(fd), closedir);
  while (const dirent* entry = list ? readdir(list.get()) : nullptr)
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') names.emplace_back(entry->d_name);
  return names;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  const std::string tasks = std::to_string(parent) + "/task";
  for (const std::string& task : names_in(tasks)) {
    std::istringstream list(
        sys::read_file(sys::proc_directory(), tasks + "/" + task + "/children"));
    for (pid_t pid = 0; list >> pid;) found.push_back(pid);
  }
  return found;
}

class Tree {
 public:
  explicit Tree(pid_t keeper, std::set<pid_t> spared = {})
      : keeper_(keeper), spared_(std::move(spared)) {}

  /// Stops everything, until look after look finds nothing that is new.
  void stop_all() {
    const auto until = std::chrono::steady_clock::now() + kLongestChase;
    for (int quiet = 0; quiet < kQuietLooks && std::chrono::steady_clock::now() < until;)
      quiet = look() ? 0 : quiet + 1;
  }

  int signal(int number) {
    for (const auto& [pid, fd] : members_) send(fd.get(), number);
    if (number != SIGKILL && number != SIGSTOP)
      for (const auto& [pid, fd] : members_) send(fd.get(), SIGCONT);
    return static_cast<int>(members_.size());
  }

 private:
  /// Stops what was not known before; whether there was any, or has just been.
  bool look() {
    bool found = false;
    std::vector<pid_t> todo = {keeper_};
    std::set<pid_t> seen = {keeper_};
    while (!todo.empty()) {
      const pid_t parent = todo.back();
      todo.pop_back();
      for (const pid_t child : children_of(parent)) {
        if (spared_.contains(child) || !seen.insert(child).second) continue;
        todo.push_back(child);
        found |= stop(child, parent);
      }
    }
    return found;
  }

  static void send(int fd, int number) { sys::raw(SYS_pidfd_send_signal, fd, number, nullptr, 0U); }

  /// The descriptor comes first and the look at the parent after it: a number that was given anew
  /// meanwhile has another parent, or is a descendant all the same. One that has gone since it was
  /// listed, or ended and was not known to have, may have left a child.
  bool stop(pid_t pid, pid_t parent) {
    if (members_.contains(pid)) return false;
    UniqueFd fd(static_cast<int>(sys::raw(SYS_pidfd_open, pid, 0U)));
    const std::optional<sys::ProcessStatus> about = sys::status_of(pid);
    if (!fd.valid() || !about || (about->parent != parent && about->parent != keeper_)) return true;
    if (about->has_ended()) return ended_.insert(pid).second;
    send(fd.get(), SIGSTOP);
    members_.emplace(pid, std::move(fd));
    return true;
  }

  pid_t keeper_;
  std::set<pid_t> spared_;
  std::map<pid_t, UniqueFd> members_;
  std::set<pid_t> ended_;
};

}  // namespace

void kill_orphans(pid_t init, const std::set<pid_t>& spared, pid_t spared_inside) {
  std::set<pid_t> all = spared;
  if (spared_inside != 0)
    for (const pid_t child : children_of(init))
      if (const auto about = sys::status_of(child);
          about && !about->numbers.empty() && about->numbers.back() == spared_inside)
        all.insert(child);
  Tree tree(init, std::move(all));
  tree.stop_all();
  tree.signal(SIGKILL);
}

int signal_descendants(pid_t keeper, int number) {
  Tree tree(keeper);
  tree.stop_all();
  return tree.signal(number);
}

}  // namespace belljar::launcher
