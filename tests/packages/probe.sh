#!/bin/bash
# Inside the booted system: the life of the packages, one line for each thing that holds or does not.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
wrong=0
holds() { echo "ok     $1"; }
fails() { echo "FAILED $1"; wrong=$((wrong + 1)); sed 's/^/       /' /tmp/last | tail -n 15; }
check() { local what=$1; shift; if "$@" >/tmp/last 2>&1; then holds "$what"; else fails "$what"; fi; }
refuses() { local what=$1; shift; if "$@" >/tmp/last 2>&1; then fails "$what"; else holds "$what"; fi; }
api() { curl -sS --fail-with-body -m 60 --unix-socket /run/belljar/belljard.sock "$@"; }
run() { api http://localhost/v1/run -H 'content-type: application/json' -d '{"policy":"builtin:agent@1","argv":["/bin/sh","-c","id -u"],"timeout":"20s"}'; }
says_exited() { run | grep -q '"cause":"exited"'; }
session() { api http://localhost/v1/sessions -H 'content-type: application/json' -d '{"policy":"'"$1"'"}' | sed -n 's/.*"id":"\([^"]*\)".*/\1/p'; }

echo "systemd $(systemctl --version | head -n 1), $(uname -r)"
check "the packages install" dpkg -i /run/probe/belljar_*.deb /run/probe/belljard_*.deb
check "the socket listens" systemctl is-active belljard.socket
check "the daemon is ready (Type=notify)" systemctl is-active belljard.service
check "what systemd has seen of it: notified, with a watchdog" sh -c 'systemctl show belljard -p NotifyAccess,WatchdogUSec,StatusErrno | tee /dev/stderr | grep -q "WatchdogUSec=1min"'
check "the socket is the group's" sh -c '[ "$(stat -c "%a %U %G" /run/belljar/belljard.sock)" = "660 root belljar" ]'
check "the daemon is belljard, without capabilities" sh -c 'p=$(systemctl show -p MainPID --value belljard); [ "$(ps -o user= -p $p)" = belljard ] && grep -q "CapPrm:.0000000000000000" /proc/$p/status'
check "a token was made, and is not everybody's" sh -c '[ "$(stat -c "%a %U %G" /etc/belljar/tokens/default)" = "640 root belljar" ] && [ "$(wc -c < /etc/belljar/tokens/default)" = 65 ]'
check "it is ready for sessions" api http://localhost/readyz
check "a command runs in a sandbox" says_exited
check "policies of the package can be named" sh -c '[ -n "$1" ]' sh "$(session agent)"
check "belljarctl lists it" belljarctl ps

# Each directive that the unit leaves out, added to those that it has: no session starts.
settings() {
  sed -n '/^CapabilityBoundingSet=/,/^SystemCallFilter=/p' /lib/systemd/system/belljard.service | grep -v '^#' | while read -r line; do
    printf -- '-p\n%s\n' "$line"
  done
}
mapfile -t unit < <(settings)
check "the self-test holds under all of the unit's settings" systemd-run --quiet --wait --pipe "${unit[@]}" -p StateDirectory=belljar belljar --selftest
check "one whose policy requires a /proc too" systemd-run --quiet --wait --pipe "${unit[@]}" -p StateDirectory=belljar belljar selftest --policy builtin:strict@1
for directive in RestrictNamespaces=yes PrivateUsers=yes SystemCallFilter=~@mount; do
  refuses "left out, because no sandbox starts: $directive" systemd-run --quiet --wait --pipe "${unit[@]}" -p "$directive" belljar --selftest
done
for directive in ProtectProc=invisible; do
  refuses "left out, because sandboxes lose their /proc: $directive" systemd-run --quiet --wait --pipe "${unit[@]}" -p "$directive" belljar selftest --policy builtin:strict@1
done
node='import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)'
check "the negative control of the next: memory that is written and executed" systemd-run --quiet --wait --pipe "${unit[@]}" python3 -c "$node"
refuses "left out, because sessions inherit it and compile at run time: MemoryDenyWriteExecute=yes" systemd-run --quiet --wait --pipe "${unit[@]}" -p MemoryDenyWriteExecute=yes python3 -c "$node"
refuses "left out, because sandboxes may have a name: ProtectHostname=yes" systemd-run --quiet --wait --pipe "${unit[@]}" -p ProtectHostname=yes belljar run --policy builtin:agent@1 --set identity.uid=70001 --set identity.hostname=box -- true

# Under load: clients that never stop asking, while the daemon restarts.
asking() { while [ -e /tmp/ask ]; do run >/dev/null 2>&1; done; }
touch /tmp/ask
asking & asking &
check "it restarts under load" systemctl restart belljard
check "and runs commands again" says_exited
rm /tmp/ask
wait
check "a reload reads the tokens again" systemctl reload belljard
check "it stops" systemctl stop belljard.socket belljard.service
check "and leaves no process of the pool" sh -c '! ps -eo uid= | awk "\$1 >= 69999 && \$1 < 71000" | grep .'
check "nor a workspace" sh -c '[ -z "$(ls -A /var/lib/belljar/sessions)" ]'
check "the socket starts it when somebody asks" sh -c 'systemctl start belljard.socket && ! systemctl is-active -q belljard.service && curl -sS -m 60 --fail --unix-socket /run/belljar/belljard.sock http://localhost/livez'
check "the packages are purged" dpkg -P belljard belljar
check "and nothing of them is left" sh -c '! ls -d /etc/belljar /var/lib/belljar /run/belljar /usr/share/belljar /usr/bin/belljar* /lib/systemd/system/belljard* /etc/systemd/system/*/belljard* 2>/dev/null | grep .'
[ $wrong -eq 0 ] && echo "all of it holds" || echo "$wrong of it do not hold"
