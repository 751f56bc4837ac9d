"""`belljar convert`: what bwrap's arguments mean as a policy, and what a policy is as arguments."""

import json
import pathlib
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import SandboxTest, main, merge, once

ARGUMENTS = ["--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
             "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", "1048576",
             "--tmpfs", "/tmp", "--bind-try", "/srv/data", "/data", "--setenv", "A", "b c", "--unsetenv", "SECRET",
             "--hostname", "inner", "--uid", "7", "--gid", "8", "--cap-add", "CAP_NET_BIND_SERVICE"]


class Convert(SandboxTest):
    def from_bwrap(self, *words, code=0):
        run = self.belljar("convert", "--from", "bwrap", "--", *words)
        self.assertEqual(run.code, code, str(run))
        return json.loads(run.out), run.err

    def to_bwrap(self, policy, code=0):
        run = self.belljar("convert", "--to", "bwrap", policy)
        self.assertEqual(run.code, code, str(run))
        return shlex.split(run.out), run.err

    def effective(self, policy):
        path = self.make_file("work/policy.json", json.dumps(policy))
        run = self.belljar("policy", "show", "--json", path)
        self.assertEqual(run.code, 0, str(run))
        return json.loads(run.out)

    @once
    def test_arguments_become_a_policy_that_holds(self):
        policy, _ = self.from_bwrap(*ARGUMENTS, "true")
        self.assertEqual(policy["network"], {"mode": "none"})
        self.assertEqual(policy["filesystem"]["mounts"]["/tmp"],
                         {"type": "tmpfs", "mode": "1777", "size": "1048576B"})
        self.assertEqual(policy["filesystem"]["mounts"]["/data"]["optional"], True)
        self.assertEqual(policy["capabilities"], ["CAP_NET_BIND_SERVICE"])
        self.assertEqual(self.belljar("policy", "check", self.make_file("work/p.json", json.dumps(policy))).code, 0)

    @once
    def test_a_policy_that_was_converted_comes_back_the_same(self):
        policy, _ = self.from_bwrap(*ARGUMENTS, "true")
        words, _ = self.to_bwrap(self.make_file("work/p.json", json.dumps(policy)))
        again, _ = self.from_bwrap(*words, "true")
        first, second = self.effective(policy), self.effective(again)
        for name in ("name", "description"):
            first.pop(name, None), second.pop(name, None)
        self.assertEqual(first, second)

    @once
    def test_what_a_later_mount_covers_is_left_out(self):
        policy, _ = self.from_bwrap("--unshare-pid", "--tmpfs", "/a/b", "--bind", "/x", "/a", "true")
        self.assertEqual(list(policy["filesystem"]["mounts"]), ["/a"])

    @once
    def test_what_a_policy_cannot_say_is_told(self):
        _, said = self.from_bwrap("--chdir", "/x", "--lock-file", "/y", "--ro-bind", "/", "/", "true", code=1)
        for what in ("--unshare-pid", "--chdir", "--lock-file"):
            self.assertIn(f"no counterpart: {what}" if what != "--unshare-pid" else what, said)

    @once
    def test_what_bwrap_has_no_option_for_is_told(self):
        _, said = self.to_bwrap("builtin:agent@1", code=1)
        for what in ("syscalls", "landlock", "limits"):
            self.assertIn(f"no counterpart: {what}", said)

    @once
    def test_no_field_that_bwrap_cannot_say_is_passed_over(self):
        from_arguments, _ = self.from_bwrap(*ARGUMENTS, "true")
        self.to_bwrap(self.make_file("work/whole.json", json.dumps(from_arguments)))  # Nothing of it is missing.
        mount = lambda **fields: {"filesystem": {"mounts": {"/m": fields}}}
        losses = {"identity.umask": {"identity": {"umask": "0077"}},
                  "network.publish": {"network": {"mode": "private", "publish": {"127.0.0.1:8000": 80}}},
                  "io.stdin": {"io": {"stdin": "null"}}, "io.stdout": {"io": {"stdout": "null"}},
                  "io.stderr": {"io": {"stderr": "null"}}, "io.keep": {"io": {"keep": [3]}},
                  'filesystem.mounts["/m"].readonly': mount(type="proc", readonly=True),
                  'filesystem.mounts["/m"].size': mount(type="dev", size="1MiB"),
                  'filesystem.mounts["/m"].inodes': mount(type="tmpfs", inodes=10),
                  "syscalls": {"syscalls": {"base": "none", "default": "kill"}},
                  "filesystem.workspace.idmap": {"filesystem": {"workspace": {"path": "/srv", "idmap": "owner"}}}}
        for field, fragment in losses.items():
            with self.subTest(field=field):
                path = self.make_file("work/p.json", json.dumps(merge(from_arguments, fragment)))
                _, said = self.to_bwrap(path, code=1)
                self.assertIn(f"no counterpart: {field}", said)
        self.assertIn("--assert-userns-disabled", self.from_bwrap("--unshare-user", "--unshare-pid",
                                                                  "--assert-userns-disabled", "true", code=1)[1])

    @once
    def test_nonsense_is_refused(self):
        self.assertEqual(self.belljar("convert", "--from", "bwrap", "--", "--no-such").code, 2)
        self.assertEqual(self.belljar("convert", "--to", "bwrap", "/no/such.json").code, 2)
        self.assertEqual(self.belljar("convert", "--to", "docker", "x").code, 2)
        self.assertEqual(self.belljar("convert").code, 2)

    @once
    def test_a_converted_policy_runs(self):
        policy, _ = self.from_bwrap(*ARGUMENTS[:23], "true")
        if self.caller == "root":
            policy["identity"] = {"uid": self.uid, "gid": self.gid}
        path = self.make_file("work/p.json", json.dumps(policy))
        run = self.belljar("run", "--policy", path, "--", "/bin/sh", "-c", "stat -c %a /tmp; ls /")
        self.assertEqual((run.code, run.out.split()[0]), (0, "1777"), str(run))


if __name__ == "__main__":
    main()
