// Prints what an exec gave it: "RUID EUID SUID permitted-capabilities". Planted set-user-id root in
// a workspace, it must print the session's own uid three times and no capability.
#include <linux/capability.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
  uid_t real, effective, saved;
  getresuid(&real, &effective, &saved);
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
  syscall(SYS_capget, &header, data);
  printf("%u %u %u %08x%08x\n", real, effective, saved, data[1].permitted, data[0].permitted);
  return 0;
}
