#include "launcher/service/sweep.hpp"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include "launcher/sys/proc.hpp"
#include "launcher/sys/process_status.hpp"
#include "launcher/sys/raw.hpp"

namespace belljar::service {
namespace {

using sys::UniqueFd;

using All = std::map<pid_t, sys::ProcessStatus>;

All processes() {
  All found;
  for (const pid_t pid : sys::all_processes())
    if (auto status = sys::status_of(pid)) found.emplace(pid, *std::move(status));
  return found;
}

bool has_uid(const sys::ProcessStatus& status, uid_t uid) {
  return std::find(status.uids.begin(), status.uids.end(), uid) != status.uids.end();
}

/// The process and what it descends from, up to the first that is not there.
std::vector<pid_t> line_of(const All& all, pid_t pid) {
  std::vector<pid_t> line;
  for (auto found = all.find(pid); found != all.end() && line.size() <= all.size();
       found = all.find(found->second.parent))
    line.push_back(found->first);
  return line;
}

/// Whether its user namespace is not ours, and belongs to `uid`. `known` decides where the kernel
/// does not let us look: init is not dumpable.
bool is_in_our_making(pid_t pid, uid_t uid, bool known) {
  const std::string path = std::to_string(pid) + "/ns/user";
  const UniqueFd space(openat(sys::proc_directory(), path.c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd own(openat(sys::proc_directory(), "self/ns/user", O_RDONLY | O_CLOEXEC));
  struct stat its {
  }, ours{};
  if (!space.valid() || !own.valid() || fstat(space.get(), &its) != 0 ||
      fstat(own.get(), &ours) != 0)
    return known;
  if (its.st_ino == ours.st_ino) return false;
  uid_t owner = 0;
  return ioctl(space.get(), NS_GET_OWNER_UID, &owner) == 0 && owner == uid;
}

}  // namespace

Outcome<Finding> sweep(uid_t uid, pid_t service, bool unsandboxed, bool shared_uid,
                       const std::vector<pid_t>& spared) {
  std::uint64_t left = 0;
  // A process that is being killed takes a moment; what it has forked before is found next time.
  for (int tries = 0; tries < 50; ++tries) {
    left = 0;
    bool look_again = false;
    const All all = processes();
    const auto self = all.find(getpid());
    const std::size_t depth = self == all.end() ? 1 : self->second.numbers.size();
    for (const auto& [pid, seen] : all) {
      const std::vector<pid_t> line = line_of(all, pid);
      const bool own =
          pid == getpid() || pid == service ||
          std::find_first_of(line.begin(), line.end(), spared.begin(), spared.end()) != line.end();
      if (own || !has_uid(seen, uid) || seen.has_ended()) continue;
      // Held by its descriptor before it is looked at, so that the number cannot pass on.
      const UniqueFd held(static_cast<int>(sys::raw(SYS_pidfd_open, pid, 0U)));
      const bool below = std::find(line.begin(), line.end(), service) != line.end();
      const bool ours = unsandboxed
                            ? below
                            : is_in_our_making(pid, uid, below && seen.numbers.size() > depth) &&
                                  (below || !shared_uid);
      if (!ours && shared_uid) continue;  // The person's own.
      // What has gone since it was listed is not left; whether it was the last is seen next time.
      look_again |= ours || !held.valid();
      if (!held.valid()) continue;
      ++left;
      if (ours) sys::raw(SYS_pidfd_send_signal, held.get(), SIGKILL, nullptr, 0U);
    }
    if (!look_again) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return Finding{"{\"left\":" + std::to_string(left) + "}", {}};
}

}  // namespace belljar::service
