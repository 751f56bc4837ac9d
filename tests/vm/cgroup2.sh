# Runs as the first process of a virtual machine (run.sh), by busybox.
box=/bin/busybox
$box --install -s /usr/bin
export PATH=/usr/bin:/bin
ln -s busybox /bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup /sys/fs/cgroup
echo 'ada:x:1000:1000::/tmp:/bin/sh' >/etc/passwd
echo 'ada:x:1000:' >/etc/group
chmod 755 / /bin /usr /usr/bin /etc
chmod 1777 /tmp
top=/sys/fs/cgroup
echo +memory +pids +cpu >$top/cgroup.subtree_control
cat >/policy.json <<'TEXT'
{ "version": 1,
  "filesystem": { "root": "empty", "mounts": {
    "/usr": { "type": "bind", "source": "/usr" }, "/bin": { "type": "bind", "source": "/bin" },
    "/proc": { "type": "proc" }, "/dev": { "type": "dev" } } },
  "network": { "mode": "none" },
  "env": { "set": { "PATH": "/usr/bin:/bin" } } }
TEXT

passed=0 failed=0
# check SENTENCE PATTERN...: each in what the last run said.
check() {
  sentence=$1
  shift
  for pattern in "$@"; do
    grep -q -- "$pattern" /tmp/said && continue
    failed=$((failed + 1))
    echo "FAILED $sentence: no $pattern in"
    cat /tmp/said
    return
  done
  passed=$((passed + 1))
  echo "ok     $sentence"
}

# as_root CGROUP ARGUMENTS..., as_ada likewise: belljar run, started in that cgroup.
as_root() {
  place=$1
  shift
  sh -c 'echo $$ >'"$place"'/cgroup.procs; exec "$@"' sh \
    belljar run --policy /policy.json --record fd:1 "$@" >/tmp/said 2>&1
  echo "exit $?" >>/tmp/said
}
as_ada() {
  place=$1
  shift
  sh -c 'echo $$ >'"$place"'/cgroup.procs; exec "$@"' sh start-stop-daemon -S -c ada:ada -x /bin/belljar -- \
    run --policy /policy.json --record fd:1 "$@" >/tmp/said 2>&1
  echo "exit $?" >>/tmp/said
}
hog="dd if=/dev/zero of=/dev/null bs=100M count=1"
left() {
  { find $top -name 'belljar-*'; echo "end; below: $(cat "$1/cgroup.subtree_control")."; } >/tmp/said
}

mkdir $top/scope
limits="--set limits.memory=64MiB --set limits.processes=20 --set limits.cpus=0.5"
as_root $top/scope $limits -- cat /proc/self/cgroup
check "the cgroup namespace begins at the sandbox's own" '^0::/$' '"cause":"exited"'
left $top/scope
check "nothing is left, and the launcher's leaf is gone" '^end; below: \.$'

(as_root $top/scope $limits -- sleep 4) &
sleep 2
own=$(find $top/scope -name 'belljar-*' -type d | grep -v launcher)
for file in memory.max memory.swap.max memory.oom.group pids.max cpu.max; do
  echo "$file $(cat "$own/$file")"
done >/tmp/seen
wait
cp /tmp/seen /tmp/said
check "each limit is what the policy says" 'memory.max 67108864' 'memory.swap.max 0' 'memory.oom.group 1' \
  'pids.max 21' 'cpu.max 50000 100000'

as_root $top/scope --set limits.memory=32MiB -- $hog
check "memory ends the command" '"cause":"memory","signal":"SIGKILL","limits":\["memory"\]' '^exit 137'
as_root $top/scope --set limits.memory=200MiB -- $hog
check "enough memory does not" '"cause":"exited","exit_code":0'
as_root $top/scope --set limits.memory=32MiB -- sh -c "$hog; sleep 1; echo went on"
check "memory ends the whole sandbox" '"cause":"memory"'
as_root $top/scope --set limits.processes=10 -- sh -c 'b() { b | b & }; b; sleep 1; exit 3'
check "a fork bomb is held and named" '"cause":"processes"' '"limits":\["processes"\]'
BELLJAR_BACK_END=legacy as_root $top/scope --set limits.memory=32MiB --set limits.processes=1 -- $hog
check "the legacy back end does the same" '"cause":"memory"' '"back_end":"legacy"'

mkdir $top/unit $top/other $top/ada
echo +memory +pids >$top/unit/cgroup.subtree_control
mkdir $top/unit/main
chown -R ada $top/unit $top/ada
(echo 0 >$top/unit/main/cgroup.procs; exec sleep 100) &
sleep 1
as_ada $top/unit/main --set limits.memory=32MiB -- $hog
check "beside others, the one above is used when it was handed over" '"cause":"memory"'
as_ada $top/ada --set limits.memory=32MiB -- $hog
check "alone in what was handed over, a leaf is made" '"cause":"memory"'
as_ada $top/other --set limits.memory=32MiB -- true
check "what was not handed over refuses" 'needs a cgroup, and none can be made' EACCES Delegate=yes '^exit 125'
as_ada $top/other --set limits.memory=32MiB --set limits.enforce=prefer -- true
check "unless the policy prefers" '"cause":"exited"' '"control":"cgroup"'

(as_ada $top/unit/main --set limits.memory=32MiB -- sleep 100) &
sleep 3
kill -9 "$(pidof belljar | tr ' ' '\n' | sort -n | head -n 1)"
sleep 1
left $top/unit
check "a killed belljar leaves its cgroup" 'unit/belljar-'
as_ada $top/unit/main --set limits.memory=32MiB -- true
left $top/unit
check "which the next removes" '^end; below'
grep -q belljar- /tmp/said && failed=$((failed + 1))

echo "$passed passed, $failed failed"
poweroff -f
