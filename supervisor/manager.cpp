// What systemd is told, and what it has opened for us.
#include <systemd/sd-daemon.h>

#include <cstdlib>

#include "supervisor/supervisor.hpp"

namespace belljar::supervisor {

void notify_manager(const std::string& state) {
  (void)sd_notify(/*unset_environment=*/0, state.c_str());
}

std::vector<ActivatedSocket> activated_sockets() {
  char** names = nullptr;
  // The variables are taken away: no child of ours is to believe that they are meant for it.
  const int count = sd_listen_fds_with_names(/*unset_environment=*/1, &names);
  std::vector<ActivatedSocket> sockets;
  for (int index = 0; index < count; ++index)
    sockets.push_back({UniqueFd(SD_LISTEN_FDS_START + index), names ? names[index] : ""});
  for (int index = 0; names && index < count; ++index) std::free(names[index]);
  std::free(static_cast<void*>(names));
  return sockets;
}

}  // namespace belljar::supervisor
