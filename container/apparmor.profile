# For belljard's container on a host with AppArmor: what Docker's own profile denies, less its denial of mounts,
# without which no sandbox can be built. The kernel still asks for CAP_SYS_ADMIN, which the container has only in
# namespaces of its own. The first line keeps newer parsers from mediating user namespaces.
abi <abi/3.0>,

include <tunables/global>

profile belljar-container flags=(attach_disconnected,mediate_deleted) {
  include <abstractions/base>

  network,
  capability,
  file,
  mount,
  umount,
  pivot_root,

  signal (receive) peer=unconfined,
  signal (receive) peer=runc,
  signal (receive) peer=crun,
  signal (send,receive) peer=belljar-container,
  ptrace (trace,tracedby,read,readby) peer=belljar-container,

  # The host's knobs. Id maps and oom_score_adj are below /proc/PID, which stays writable.
  deny @{PROC}/sys/kernel/{?,??,[^s][^h][^m]**} w,
  deny @{PROC}/sys/[^k]** w,
  deny @{PROC}/sysrq-trigger rwklx,
  deny @{PROC}/kcore rwklx,
  deny @{PROC}/mem rwklx,
  deny @{PROC}/kmem rwklx,
  deny /sys/[^f]*/** wklx,
  deny /sys/f[^s]*/** wklx,
  deny /sys/fs/[^c]*/** wklx,
  deny /sys/fs/c[^g]*/** wklx,
  deny /sys/fs/cg[^r]*/** wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/devices/virtual/powercap/** rwklx,
  deny /sys/kernel/security/** rwklx,
}
