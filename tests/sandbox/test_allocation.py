"""The child of a launch allocates nothing: the same launches with a malloc that kills it for that."""

import os
import signal
import subprocess

from cgroup_places import HAS_V1, Places
from harness import BUILD, SANITIZED, STAGE, SandboxTest, descendants, main

TRAP = "tests/tools/belljar_trap"


def build_trap():
    """From the build directory, or linked here from belljar's own objects."""
    if (BUILD / TRAP).exists():
        return BUILD / TRAP
    target = STAGE / "belljar_trap"
    if target.exists():
        return target
    commands = subprocess.run(["ninja", "-C", str(BUILD), "-t", "commands", "launcher/belljar"],
                              capture_output=True, text=True, check=True).stdout.splitlines()
    link = commands[-1].replace("-o launcher/belljar ", f"-o {target} ")
    source = "../tests/tools/malloc_trap.cpp"
    subprocess.run(f"{link} -std=c++20 -I.. {source}", shell=True, check=True, cwd=BUILD, capture_output=True)
    return target


class Allocation(Places, SandboxTest):

    def setUp(self):
        super().setUp()
        self.trap = build_trap()

    def test_the_trap_springs(self):
        run = self.belljar("--version", binary=self.trap, env={"BELLJAR_TRAP_CHECK": "1"})
        self.assertEqual((run.code, run.err), (134, "belljar_trap: the child called malloc\n"))

    def test_nothing_is_allocated_in_usual_launches(self):
        for preset in ("builtin:agent@1", "builtin:dev@1", "builtin:strict@1"):
            run = self.sandbox("sh", "-c", "exit 3", policy=preset, options=self.session_options(),
                               binary=self.trap)
            self.check_exited(run, 3)

    def test_nor_with_everything_that_a_policy_can_ask_for(self):
        self.make_directory("data/sub")
        mounts = {"/data": {"type": "bind", "source": str(self.dir / "data"), "noexec": True},
                  "/absent": {"type": "bind", "source": "/no/such", "optional": True},
                  "/d": {"type": "dir"}, "/f": {"type": "file", "content": "x"},
                  "/l": {"type": "symlink", "source": "d"},
                  "/t": {"type": "tmpfs", "size": "1MiB", "inodes": 10},
                  "/proc": {"type": "proc", "subset": "pid"}}
        policy = {"identity": {"hostname": "jar", "umask": "027", "inside_uid": 0, "inside_gid": 0},
                  "filesystem": {"mounts": mounts, "home": "private",
                                 "mask": {"/usr/share": "x", "/data/sub": "x"}},
                  "namespaces": {"time": "new", "time_offsets": {"boottime": "1h", "monotonic": "-1500ms"}},
                  "landlock": {"filesystem": True, "scopes": ["abstract_unix_socket", "signal"],
                               "bind_tcp": [80], "connect_tcp": []},
                  "capabilities": ["NET_BIND_SERVICE"], "io": {"stdin": "null"},
                  "limits": {"rlimits": {"nofile": 64, "core": "0B"}, "wall_time": "10s"},
                  "syscalls": {"base": "agent@1", "rules": {"sync": "EPERM"}}}
        self.check_exited(self.sandbox("true", policy=policy, binary=self.trap))

    def test_nor_with_what_belljar_does_beside_the_sandbox(self):
        for name in ("low", "upper", "upper-work"):
            self.make_directory(name, owner=self.uid)
        overlay = {"type": "overlay", "lower": [str(self.dir / "low")]}
        mounts = {"/memory": {**overlay, "size": "1MiB"}, "/dev/mqueue": {"type": "mqueue"},
                  "/kept": {**overlay, "upper": str(self.dir / "upper"), "work": str(self.dir / "upper-work")}}
        workspace, limits, before = {}, {"output": "1MiB", "disk": "1GiB"}, []
        if self.caller == "root" and self.back_end == "modern":
            os.chown(self.work, self.uid + 1, self.uid + 1)
            workspace = {"idmap": "owner"}
        if HAS_V1:
            self.make_places()
            before = self.placed()
            limits = {**limits, "memory": "256MiB", "processes": 50, "cpus": 2, "cpu_time": "1m"}
        policy = {"limits": limits, "filesystem": {"workspace": workspace, "mounts": mounts}}
        self.check_exited(self.sandbox("true", policy=policy, binary=self.trap, before=before))

    def test_nor_with_a_terminal_of_its_own(self):
        self.check_exited(self.sandbox("true", policy={"io": {"tty": "new"}}, binary=self.trap))

    def test_nor_when_a_step_fails(self):
        missing = {"filesystem": {"mounts": {"/x": {"type": "bind", "source": "/no/such"}}}}
        self.check_refused(self.sandbox("true", policy=missing, binary=self.trap), "/no/such")
        self.check_refused(self.sandbox("no-such-command", binary=self.trap), "exists neither", code=127)
        self.make_file("work/script", "#!/opt/missing\n", owner=self.uid, mode=0o755)
        self.check_refused(self.sandbox("./script", binary=self.trap), "/opt/missing", code=126)

    def test_nor_while_it_runs_and_is_signalled(self):
        running = self.start_sandbox("sh", "-c", "kill -STOP $$; sleep 60", binary=self.trap, status=True)
        init = running.wait_until_started()
        running.next_event("stopped")
        os.kill(descendants(init)[0][0], signal.SIGCONT)
        running.next_event("continued")
        running.send(signal.SIGTERM)
        self.assertEqual(running.finish().code, -15)


if SANITIZED:  # A sanitizer has a malloc of its own.
    del Allocation


if __name__ == "__main__":
    main()
