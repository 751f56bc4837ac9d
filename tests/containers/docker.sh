#!/bin/bash
# The images and the compose file with a real Docker, which is started here and ended: tests/containers/docker.sh BUILD
# As root, by hand (./dev container-test). The programs are BUILD's, in a base image that debootstrap makes, so that no
# registry is asked. COMPOSE_PLUGIN names docker-compose version 2 where docker has no such plugin; TARGETS are the
# images that are built. One line for each thing that holds or does not.
set -uo pipefail
# What is mounted is nobody else's to see.
[ "${OWN_MOUNTS:-}" = yes ] || OWN_MOUNTS=yes exec unshare --mount --propagation private "$0" "$@"
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(cd "${1:?the build directory}" && pwd)
place=$(mktemp -d /var/tmp/belljar-docker-XXXXXX)
targets=${TARGETS:-belljard agents worker}
wrong=0
simulator=besser-wme-agent-simulator
commit=$(git -C "$root" rev-parse HEAD)

holds() { echo "ok     $1"; }
fails() { echo "FAILED $1"; wrong=$((wrong + 1)); sed 's/^/       /' "$place/last" | tail -n 12; }
check() { local what=$1; shift; if "$@" >"$place/last" 2>&1; then holds "$what"; else fails "$what"; fi; }
refuses() { local what=$1 text=$2; shift 2; if ! "$@" >"$place/last" 2>&1 && grep -q -- "$text" "$place/last"; then holds "$what: $(grep -o -- "$text.*" "$place/last" | head -n 1 | cut -c1-90)"; else fails "$what"; fi; }

start_docker() {
  export DOCKER_HOST=unix://$place/s.sock DOCKER_CONFIG=$place/config DOCKER_BUILDKIT=1 PATH=/usr/sbin:/usr/bin:/sbin:/bin
  mkdir -p "$place/config/cli-plugins"
  [ -z "${COMPOSE_PLUGIN:-}" ] || cp "$COMPOSE_PLUGIN" "$place/config/cli-plugins/docker-compose"
  dockerd --data-root "$place/data" --exec-root "$place/exec" --pidfile "$place/pid" -H "$DOCKER_HOST" --iptables=false \
    --bridge=none --storage-driver=overlay2 >"$place/log" 2>&1 &
  for _ in $(seq 200); do docker version >/dev/null 2>&1 && return; sleep 0.1; done
  echo "dockerd does not start:"; tail -n 5 "$place/log"; exit 1
}

end_docker() {
  docker compose -f "$root/container/compose.yaml" down -v >/dev/null 2>&1
  kill "$(cat "$place/pid")" 2>/dev/null
  for _ in $(seq 100); do [ -e "$place/pid" ] || break; sleep 0.1; done
  rm -rf "$place"
}
trap end_docker EXIT

base_images() {
  local tree=${ROOTFS:-$place/rootfs}
  [ -d "$tree" ] || debootstrap --variant=minbase bookworm "$tree" >"$place/debootstrap" 2>&1 || { tail -n 3 "$place/debootstrap"; exit 1; }
  tar -C "$tree" --one-file-system -c . | docker import - debian:12 >/dev/null
  docker tag debian:12 debian:12-slim
  mkdir -p "$place/programs/out"
  install -s -t "$place/programs/out" "$build/launcher/belljar" "$build/api/belljard" "$build/api/belljarctl"
  printf 'FROM scratch\nCOPY out /out\n' >"$place/programs/Dockerfile"
  docker build -q -t belljar-programs "$place/programs" >/dev/null
}

build_target() {
  docker build --network=host -f "$root/container/Dockerfile" --target "$1" -t "belljar-$1:latest" \
    --build-arg BINARIES=belljar-programs --build-arg BELLJAR_BUILD_SHA="$commit" "$root"
}

hardened=(--cap-drop ALL --cap-add CHOWN --cap-add DAC_OVERRIDE --cap-add SETUID --cap-add SETGID --cap-add KILL
          --security-opt no-new-privileges:true)
filter=(--security-opt "seccomp=$root/container/seccomp.json")
proc=(--mount type=volume,source=belljar-test-proc,target=/hide/p,volume-nocopy=true
      --tmpfs /usr/lib/belljar/hide:ro,size=4k)
contained() { docker run --rm --network none "$@"; }

echo "$(date -u +%Y-%m-%d) commit $commit, $(uname -r)"
start_docker
echo "docker $(docker version -f '{{.Server.Version}}'), $(docker compose version 2>/dev/null || echo 'no compose')"
base_images
for target in $targets; do check "the image $target is built" build_target "$target"; done
refuses "without BuildKit the build says so" "BuildKit" env DOCKER_BUILDKIT=0 sh -c 'docker build - <"$0"' "$root/container/Dockerfile"

# --- the compose file ------------------------------------------------------------------------------------------------
cd "$root/container" || exit 1
export AGENT_SIMULATOR_API_TOKEN=0123456789abcdef0123456789abcdef
inside() { docker compose -f compose.yaml exec -T "$simulator" "$@"; }
session() { docker cp "$root/tests/demo/session.py" "$simulator:/tmp/session.py" && inside python3 /tmp/session.py /usr/bin/belljard /usr/bin/belljar; }
says_narrow() { docker logs "$simulator" 2>&1 | grep 'the container setting=narrow'; }
check "docker compose up, until it is healthy" docker compose -f compose.yaml up -d --no-build --wait "$simulator"
check "belljard says that the setting is narrow" says_narrow
check "the self-test, as a session's uid" inside belljar --selftest
check "an agent's session through the daemon" session
refuses "container root cannot open core_pattern for writing" "Read-only file system" inside \
  python3 -c 'import os; os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)'
refuses "no path leads to the hidden /proc" "No such file" inside ls /hide/p
check "deploy-check after" "$root/container/deploy-check" after --commit "$commit" --service \
  "$simulator=belljar-agents:latest" --backend "" --skip answer --dir "$root/container" --file compose.yaml
docker compose -f compose.yaml down -v >/dev/null 2>&1
check "the existing deployment's options still work" docker compose -f compose.legacy.yaml up -d --no-build --wait
check "and there container root can open core_pattern" docker compose -f compose.legacy.yaml exec -T "$simulator" \
  python3 -c 'import os; os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)'
refuses "which belljard says" "core_pattern is writable" sh -c "docker logs $simulator 2>&1; false"
docker compose -f compose.legacy.yaml down -v >/dev/null 2>&1

# --- the worker, as the plain user that its image has -------------------------------------------------------------------
worker=besser-wme-smartgen
export BELLJAR_WORKER_IMAGE=belljar-worker:latest
in_worker() { docker compose -f compose.yaml exec -T "$worker" "$@"; }
shell_session() {
  in_worker sh -ec 'S=$(belljarctl create --policy builtin:shell@1); belljarctl exec "$S" -- sh -c "echo one > file";
                    belljarctl exec "$S" -- cat file; belljarctl exec "$S" -- id -un; belljarctl rm "$S"' | tee "$place/said"
  grep -x one "$place/said"
}
if [[ " $targets " == *" worker "* ]]; then
  check "docker compose up of the worker, until it is healthy" docker compose -f compose.yaml up -d --no-build --wait "$worker"
  check "the self-test there, as its own user" in_worker belljar --selftest
  check "a shell's session through belljarctl keeps its files" shell_session
  for tool in "node --version" "tsc -v" "cargo --version" "javac -version" "kotlinc -version" "python3 --version"; do
    check "the worker has $tool" in_worker sh -c "$tool"
  done
  docker compose -f compose.yaml down -v >/dev/null 2>&1
  rm -rf telemetry-logs
fi

# --- one command through /v1, and each setting removed ------------------------------------------------------------------
docker volume create -d local -o type=proc -o device=proc -o o=nosuid,nodev,noexec,subset=pid,hidepid=ptraceable \
  belljar-test-proc >/dev/null
one_shot() { contained "${hardened[@]}" "${filter[@]}" "${proc[@]}" --init belljar-belljard sh -c \
  'belljard & until [ -S /run/belljar/belljard.sock ]; do sleep 0.1; done; belljarctl run -- /bin/echo through-v1'; }
through_v1() { one_shot 2>&1 | grep through-v1; }
selftest=(belljar selftest --policy builtin:strict@1)
check "a command through /v1 in the image belljard" through_v1
check "all settings, as PID 1" contained "${hardened[@]}" "${filter[@]}" "${proc[@]}" belljar-belljard "${selftest[@]}"
check "the narrow filter" contained "${hardened[@]}" --security-opt "seccomp=$root/container/seccomp-narrow.json" "${proc[@]}" belljar-belljard "${selftest[@]}"
refuses "without our filter" "namespaces: " contained "${hardened[@]}" "${proc[@]}" belljar-belljard "${selftest[@]}"
refuses "without the hidden /proc" "proc_and_dev: " contained "${hardened[@]}" "${filter[@]}" belljar-belljard "${selftest[@]}"
refuses "without SETUID and SETGID" "identity: .*CAP_SETUID" contained --cap-drop ALL --cap-add CHOWN --cap-add DAC_OVERRIDE --cap-add KILL \
  --security-opt no-new-privileges:true "${filter[@]}" "${proc[@]}" belljar-belljard "${selftest[@]}"
check "as a plain user, without uids for sessions" contained --user 10001 --cap-drop ALL --security-opt no-new-privileges:true \
  "${filter[@]}" "${proc[@]}" belljar-belljard "${selftest[@]}"
docker volume rm belljar-test-proc >/dev/null
[ $wrong -eq 0 ] && echo "all of it holds" || echo "$wrong of it do not hold"
exit $((wrong != 0))
