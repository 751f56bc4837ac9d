#include "launcher/service/helper_process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "launcher/sys/proc.hpp"
#include "launcher/sys/raw.hpp"
#include "launcher/sys/session_credentials.hpp"
#include "policy/base/sealing.hpp"

namespace belljar::service {
namespace {

constexpr int kAllSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

/// Where close_range is refused (before Linux 5.9, or by a filter).
bool close_one_by_one(const std::vector<int>& kept) {
  DIR* list = opendir("/proc/self/fd");
  if (list == nullptr) return false;
  while (const dirent* entry = readdir(list)) {
    const int fd = std::atoi(static_cast<const char*>(entry->d_name));
    if (fd > 2 && fd != dirfd(list) && !std::binary_search(kept.begin(), kept.end(), fd))
      ::close(fd);
  }
  closedir(list);
  return true;
}

bool drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const std::array<__user_cap_data_struct, 2> none{};
  if (sys::raw(SYS_capset, &header, none.data()) < 0) return false;
  const Result<std::uint64_t> left = sys::effective_capabilities();
  return left && *left == 0;
}

bool take_ids(uid_t uid, gid_t gid) {
  if (!sys::set_groups(nullptr, 0)) return false;
  if (setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0) return false;
  uid_t real = 0, effective = 0, saved = 0;
  return getresuid(&real, &effective, &saved) == 0 && real == uid && effective == uid &&
         saved == uid;
}

}  // namespace

bool close_all_but(std::vector<int> kept) {
  kept.push_back(sys::proc_directory());
  std::sort(kept.begin(), kept.end());
  unsigned from = 3;
  for (const int fd : kept) {
    if (fd < 3) continue;
    const auto number = static_cast<unsigned>(fd);
    if (number > from && sys::raw(SYS_close_range, from, number - 1, 0U) < 0)
      return close_one_by_one(kept);
    from = std::max(from, number + 1);
  }
  return sys::raw(SYS_close_range, from, ~0U, 0U) >= 0 || close_one_by_one(kept);
}

void die_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

Result<Lifeline> Lifeline::make() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return sys_failure(errno, "make the lifeline");
  return Lifeline{sys::UniqueFd(ends[0]), sys::UniqueFd(ends[1])};
}

void hold_on_to(int lifeline) {
  // Opened again, because whom a description signals is one process.
  const std::string path = "self/fd/" + std::to_string(lifeline);
  const int own = openat(sys::proc_directory(), path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  // A pipe whose last writer closes it signals whoever has asked for it (man 2 fcntl, F_SETSIG).
  if (own < 0 || fcntl(own, F_SETSIG, SIGKILL) != 0 || fcntl(own, F_SETOWN, getpid()) != 0 ||
      fcntl(own, F_SETFL, O_NONBLOCK | O_ASYNC) != 0)
    _exit(1);
  pollfd writers{own, POLLIN, 0};
  if (poll(&writers, 1, 0) != 0) _exit(1);
}

void become_session(const Pool& pool, uid_t uid) {
  const pid_t parent = getppid();
  if (pool.privileged && !take_ids(uid, pool.group_of(uid))) _exit(1);
  const rlimit none{0, 0};
  const bool good = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_DUMPABLE, 0) == 0 &&
                    setrlimit(RLIMIT_CORE, &none) == 0 && drop_capabilities();
  if (!good) _exit(1);
  // The change of uid has cleared the death signal (man 2 PR_SET_PDEATHSIG).
  die_with(parent);
  umask(0);
}

sys::UniqueFd sealed_memfd(const char* name, std::string_view text) {
  sys::UniqueFd memory(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  for (std::size_t done = 0; memory.valid() && done < text.size();) {
    const ssize_t wrote = write(memory.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return {};
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
  // The offset goes along with the descriptor.
  if (memory.valid() && lseek(memory.get(), 0, SEEK_SET) != 0) return {};
  if (memory.valid() && !belljar::add_seals(memory.get(), kAllSeals)) return {};
  return memory;
}

Outcome<std::uint64_t> check_sealed(int fd, std::uint64_t most) {
  const int seals = fcntl(fd, F_GET_SEALS);
  // Seals on executing and on writing in future say less, and are no harm beside the four.
  if (seals < 0 || (seals & kAllSeals) != kAllSeals)
    return refuse(Code::kInvalid,
                  "the body is no memfd that is sealed against writing, growing, shrinking and "
                  "sealing");
  struct stat about {};
  if (fstat(fd, &about) != 0) return call_failed(errno, "look at the body");
  const auto size = static_cast<std::uint64_t>(about.st_size);
  if (size > most)
    return refuse(Code::kTooLarge, "the body has " + std::to_string(size) + " bytes, at most " +
                                       std::to_string(most) + " are taken");
  return size;
}

Outcome<std::string> read_whole(int fd, std::uint64_t size) {
  std::string text(size, '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got = pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return call_failed(errno, "read the body");
    if (got == 0) return refuse(Code::kInvalid, "the body is shorter than it was");
    done += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace belljar::service
