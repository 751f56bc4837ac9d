#include "launcher/session_process.hpp"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "launcher/sys/raw.hpp"
#include "launcher/sys/session_credentials.hpp"

namespace belljar::launcher {

void close_all_but(const std::vector<int>& keep) {
  std::vector<int> others;
  if (DIR* list = opendir("/proc/self/fd")) {
    while (const dirent* entry = readdir(list)) {
      const int fd = std::atoi(static_cast<const char*>(entry->d_name));
      if (entry->d_name[0] != '.' && fd != dirfd(list) &&
          std::find(keep.begin(), keep.end(), fd) == keep.end())
        others.push_back(fd);
    }
    closedir(list);
  } else {
    _exit(4);
  }
  for (const int fd : others) close(fd);
}

void become_the_session(uid_t uid, gid_t gid) {
  const auto user = static_cast<long>(uid), group = static_cast<long>(gid);
  if (getgid() != gid && sys::raw(SYS_setresgid, group, group, group) < 0) _exit(4);
  if (getuid() != uid && sys::raw(SYS_setresuid, user, user, user) < 0) _exit(4);
  if (!sys::SessionCredentials(uid, gid, 0).raise_capabilities()) _exit(4);
  prctl(PR_SET_DUMPABLE, 0);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // After the ids, whose change clears it (man 2 prctl).
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

}  // namespace belljar::launcher
