#!/usr/bin/env python3
"""What a private network costs, beside bubblewrap with pasta started by hand and pasta alone, in one run.

    private_network.py --build DIR [--rounds N] [--at-once N] [--megabytes N]

As root, on a host made of namespaces (tests/network/hosts.py): nothing leaves this machine. Only relations mean
anything: absolute times belong to one machine at one moment, whose load is printed.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types

from report import note, print_table, title

UID = 1_430_000_000
PORT = 8765
# As the Spec-Driven worker waits in its sandbox.
WAIT = "while ! grep -q '^eth0.00000000\\|^[a-z0-9]*.00000000' /proc/net/route; do sleep 0.01; done"
FETCH = ("import socket, time\ns = socket.create_connection(('93.184.216.34', %d)); n = 0; begun = time.monotonic()\n"
         "while piece := s.recv(1 << 20): n += len(piece)\nprint(n / (time.monotonic() - begun) / 1e6)")
PASTA = ["pasta", "-f", "-q", "-4", "--config-net", "-t", "none", "-u", "none", "-T", "none", "-U", "none",
         "--no-map-gw", "--runas", "0:0"]


class Bench:
    def __init__(self, build, directory, stack):
        self.belljar, self.dir, self.stack = f"{build}/launcher/belljar", pathlib.Path(directory), stack
        self.host = self.make_host()
        self.work = self.dir / "work"
        self.work.mkdir()
        os.chown(self.work, UID, UID)
        for name in ("private", "none"):
            (self.dir / f"{name}.json").write_text(json.dumps(
                {"version": 1, "extends": ["builtin:validator@1"], "identity": {"uid": UID, "gid": UID},
                 "filesystem": {"workspace": {"path": str(self.work)}}, "network": {"mode": name}}))

    def make_host(self):
        from network.hosts import FIRST, GATEWAY, PUBLIC, Namespace
        test = types.SimpleNamespace(addCleanup=self.stack.callback)
        internet = Namespace(test, f"ip link set lo up; ip addr add {PUBLIC}/32 dev lo")
        resolv = self.dir / "resolv.conf"
        resolv.write_text(f"nameserver {GATEWAY}\n")
        host = Namespace(test, f"""
            ip link set lo up; ip link add eth0 type veth peer name peer0 netns {internet.pid}
            ip addr add {FIRST}/24 dev eth0; ip link set eth0 up
            mount -t tmpfs tmpfs /mnt; mknod /mnt/tun c 10 200; chmod 666 /mnt/tun; mount --bind /mnt/tun /dev/net/tun
            mount --bind {resolv} /etc/resolv.conf""")
        internet.run("sh", "-ec", f"ip addr add {GATEWAY}/24 dev peer0; ip link set peer0 up")
        host.run("ip", "route", "add", "default", "via", GATEWAY)
        self.internet = internet
        return host

    def ours(self, mode, *command):
        return [*self.host.enter(), self.belljar, "run", "--policy", self.dir / f"{mode}.json", "--", *command]

    def run_ours(self, mode):
        subprocess.run(list(map(str, self.ours(mode, "/bin/true"))), check=True)

    def bubblewrap(self, *more):
        return [*self.host.enter(), "bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc",
                "--dev", "/dev", "--tmpfs", "/tmp", *more]

    def by_hand(self):
        """bubblewrap says its child, pasta is attached to it, the command waits for the network and ends."""
        reading, writing = os.pipe()
        sandbox = subprocess.Popen(self.bubblewrap("--info-fd", str(writing), "--", "sh", "-c", WAIT), pass_fds=[writing])
        os.close(writing)
        said = b""
        with os.fdopen(reading, "rb", buffering=0) as info:
            while b"}" not in said:
                said += info.read(4096)
        pasta = subprocess.Popen([*self.host.enter(), *PASTA, str(json.loads(said)["child-pid"])],
                                 stderr=subprocess.DEVNULL)
        if sandbox.wait() != 0:
            sys.exit("bubblewrap with pasta by hand does not work here")
        pasta.kill()
        pasta.wait()

    def bare_bubblewrap(self):
        subprocess.run(self.bubblewrap("--", "/bin/true"), check=True)

    # --- the parts -------------------------------------------------------------------------------

    def starts(self, rounds):
        ways = {"belljar, private": lambda: self.run_ours("private"), "bubblewrap and pasta by hand": self.by_hand,
                "belljar, no network": lambda: self.run_ours("none"), "bubblewrap, no network": self.bare_bubblewrap}
        times = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                begun = time.monotonic()
                way()
                times[name].append((time.monotonic() - begun) * 1000)
        theirs = statistics.median(times["bubblewrap and pasta by hand"])
        title("A sandbox with a private network, from its start to the end of a command that does nothing (ms)")
        print_table(["", "median", "least", "of by hand"],
                    [[name, f"{statistics.median(all_):.1f}", f"{min(all_):.1f}", f"{statistics.median(all_) / theirs:.2f}"]
                     for name, all_ in times.items()])

    def memory(self, count):
        begun = time.monotonic()
        runs = [subprocess.Popen(list(map(str, self.ours("private", "sh", "-c", "echo up; read line"))),
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
        for run in runs:
            if run.stdout.readline() != b"up\n":
                sys.exit("a sandbox did not start")
        took = time.monotonic() - begun
        each = {}
        for pid, name in self.families({run.pid for run in runs}):
            with contextlib.suppress(OSError):
                lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                each[name] = each.get(name, 0) + next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        for run in runs:
            run.communicate(b"\n")
        title(f"{count} at once: all run after {took:.2f} s; memory of each (PSS, kB)")
        print_table(["process", "kB"], [[name, f"{total / count:.0f}"] for name, total in sorted(each.items())]
                    + [["together", f"{sum(each.values()) / count:.0f}"]])

    @staticmethod
    def families(roots):
        parents, names = {}, {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    text = (entry / "stat").read_text()
                    parents[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
                    names[int(entry.name)] = text.partition("(")[2].rpartition(")")[0]
        below = set(roots)
        while more := {pid for pid, parent in parents.items() if parent in below} - below:
            below |= more
        return [(pid, names[pid]) for pid in below]

    def throughput(self, megabytes, rounds):
        listener = self.internet.within(lambda: __import__("socket").create_server(("0.0.0.0", PORT)))

        def serve():
            piece = bytes(1 << 20)
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    for _ in range(megabytes):
                        connection.sendall(piece)

        threading.Thread(target=serve, daemon=True).start()
        fetch = ["/usr/bin/python3", "-c", FETCH % PORT]
        ways = {"belljar, private": self.ours("private", *fetch), "pasta alone": [*self.host.enter(), *(word for word in PASTA if word != "-f"), "--", *fetch]}
        rates = {name: [] for name in ways}
        for _ in range(rounds):
            for name, command in ways.items():
                done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE)
                rates[name].append(float(done.stdout))
        alone = statistics.median(rates["pasta alone"])
        title(f"{megabytes} MiB from outside by TCP (MB/s)")
        print_table(["", "median", "of pasta alone"], [[name, f"{statistics.median(all_):.0f}",
                                                        f"{statistics.median(all_) / alone:.2f}"] for name, all_ in rates.items()])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument("--megabytes", type=int, default=256)
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    os.environ.setdefault("BELLJAR", str(build / "launcher" / "belljar"))
    os.environ.setdefault("BELLJAR_BUILD", str(build))
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
    note("load " + " ".join(f"{one:.2f}" for one in os.getloadavg()) + f", {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory(prefix="belljar-bench-") as directory, contextlib.ExitStack() as stack:
        pathlib.Path(directory).chmod(0o755)
        bench = Bench(build, directory, stack)
        bench.starts(options.rounds)
        bench.memory(options.at_once)
        bench.throughput(options.megabytes, max(1, options.rounds // 4))
    note("load " + " ".join(f"{one:.2f}" for one in os.getloadavg()))


if __name__ == "__main__":
    main()
