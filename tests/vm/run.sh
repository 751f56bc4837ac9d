#!/usr/bin/env bash
# Cgroups of version 2 with all controllers, in a virtual machine: what no machine of the project offers.
#
#   apt-get install --no-install-recommends qemu-system-x86 seabios busybox-static cpio linux-image-cloud-amd64
#   tests/vm/run.sh [KERNEL]
#
# QEMU and CPIO name other programs, QEMU_OPTIONS adds to the machine's. Nothing is written but a
# temporary directory. Not part of ./dev test: a boot without KVM takes its time.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
belljar=${BELLJAR:-$here/../../build/launcher/belljar}
kernel=${1:-$(ls /boot/vmlinuz-*cloud* | tail -n 1)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work"/tree/{bin,new}
cp "${BUSYBOX:-/bin/busybox}" "$work/tree/bin/busybox"
strip -o "$work/tree/bin/belljar" "$belljar"
cp "$here/cgroup2.sh" "$work/tree/test.sh"
# The first root of all cannot be pivoted away from: a tmpfs becomes the second.
cat >"$work/tree/init" <<'TEXT'
#!/bin/busybox sh
/bin/busybox mount -t tmpfs -o size=600m tmpfs /new
cd /new
/bin/busybox mkdir -p bin usr/bin proc sys dev tmp etc
/bin/busybox cp /bin/* bin/
/bin/busybox cp /test.sh .
exec /bin/busybox switch_root /new /bin/busybox sh /test.sh
TEXT
chmod +x "$work/tree/init"
(cd "$work/tree" && find . | "${CPIO:-cpio}" -o -H newc --quiet | gzip -1 >"$work/initrd")

# shellcheck disable=SC2086
timeout 300 "${QEMU:-qemu-system-x86_64}" ${QEMU_OPTIONS:-} -M q35 -accel tcg,thread=single -cpu max \
  -smp 1 -m 1200 -nographic -no-reboot -kernel "$kernel" -initrd "$work/initrd" \
  -append "console=ttyS0 panic=-1 quiet" </dev/null | tr -d '\r' | tee "$work/log"
grep -q '^[1-9][0-9]* passed, 0 failed' "$work/log"
