#!/bin/bash
# Boots systemd on a copy-on-write view of this machine's root, in namespaces and cgroups of its own, installs the
# packages there, and runs probe.sh: tests/packages/boot.sh PACKAGES. As root, by hand (./dev package-test). Nothing of
# this machine is changed; cgroups version 1 and 2 below /sys/fs/cgroup are both fine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

in_namespaces() {
  local place=$1 packages=$2
  mount -t overlay overlay -o "lowerdir=/,upperdir=$place/up,workdir=$place/work" "$place/root"
  cd "$place/root"
  mount -t proc proc proc
  mount -t sysfs sysfs sys
  mount -t tmpfs tmpfs run
  mount -t tmpfs tmpfs tmp
  mount -t tmpfs -o mode=755 dev dev
  local name
  for name in null zero full random urandom tty net/tun; do
    [ -e "/dev/$name" ] || continue
    mkdir -p "$(dirname "dev/$name")"
    touch "dev/$name"
    mount --bind "/dev/$name" "dev/$name"
  done
  mkdir -p dev/pts dev/shm run/probe
  mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
  ln -s pts/ptmx dev/ptmx
  mount -t tmpfs shm dev/shm
  mount_cgroups
  mount --bind "$place/out" run/probe
  cp "$here/probe.sh" run/probe/
  cp "$packages"/belljar_*.deb "$packages"/belljard_*.deb run/probe/
  cp "$here/probe.service" etc/systemd/system/
  # Nothing of this machine's own is started, and what is installed is.
  rm -f usr/sbin/policy-rc.d
  mkdir -p etc/systemd/system/probe.target.wants
  printf '[Unit]\nDescription=The probe\nWants=probe.service\n' > etc/systemd/system/probe.target
  mkdir -p old
  pivot_root . old
  umount -l /old
  export container=other
  exec /lib/systemd/systemd --system --unit=probe.target --log-target=null --show-status=0
}

mount_cgroups() {
  local controllers
  if grep -q ' /sys/fs/cgroup cgroup2 ' /proc/mounts; then
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    return
  fi
  mount -t tmpfs -o mode=755 cgroup sys/fs/cgroup
  for controllers in cpu cpuacct memory pids devices; do
    mkdir "sys/fs/cgroup/$controllers"
    mount -t cgroup -o "$controllers" cgroup "sys/fs/cgroup/$controllers" || rmdir "sys/fs/cgroup/$controllers"
  done
  mkdir sys/fs/cgroup/systemd sys/fs/cgroup/unified
  mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd 2>/dev/null \
    || mount -t cgroup -o name=systemd cgroup sys/fs/cgroup/systemd
  mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
}

if [ "${1:-}" = --inside ]; then
  in_namespaces "$2" "$3"
fi
packages=$(cd "${1:?the directory with the packages}" && pwd)
place=$(mktemp -d /var/tmp/belljar-boot-XXXXXX)
mkdir "$place"/{up,work,root,out}
groups=()
tidy() {
  local group
  for group in "${groups[@]}"; do
    find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
  done
  rm -rf "$place"
}
trap tidy EXIT
# A cgroup of its own first, whose namespace then shows nothing else of this machine's.
(
  for group in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [ -e "$group/cgroup.procs" ] && [ ! -L "$group" ] || continue
    mkdir -p "$group/belljar-boot-$$"
    echo $BASHPID > "$group/belljar-boot-$$/cgroup.procs" 2>/dev/null || rmdir "$group/belljar-boot-$$"
  done
  exec timeout -s KILL "${SECONDS_AT_MOST:-400}" unshare --mount --propagation private --pid --fork --kill-child --uts \
    --ipc --net --cgroup "$0" --inside "$place" "$packages"
) || true
for group in /sys/fs/cgroup/belljar-boot-$$ /sys/fs/cgroup/*/"belljar-boot-$$"; do groups+=("${group}"); done
cat "$place/out/said" 2>/dev/null || echo "the probe has not run"
sleep 1
grep -q '^all of it holds' "$place/out/said"
