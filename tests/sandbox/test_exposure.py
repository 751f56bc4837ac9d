"""`explain --exposure`: what a command could reach, and that the change it names hides it."""

import json
import os
import socket

from harness import SandboxTest, as_root, back_ends, callers, environment, main

NO_SYSTEM = dict.fromkeys(("/usr", "/bin", "/lib", "/lib64", "/tools", "/belljar", "/tmp"))

EXPOSED = """exposure of uid UID under test: 9 findings

unix sockets that can be connected to
  /data/run/agent.sock
      whoever listens there can be spoken to, on a read-only mount too
      shown by POLICY filesystem.mounts["/data"]
      hide it: --set 'filesystem.mask["/data/run/agent.sock"]="not for the command"'

FIFOs that can be opened
  /data/run/control
      whoever is at its other end can be reached, on a read-only mount too
      shown by POLICY filesystem.mounts["/data"]
      hide it: --set 'filesystem.mask["/data/run/control"]="not for the command"'

programs with privileges of their own
  /data/bin/become
      setuid of uid OWNER, setgid of gid GROUP: worth nothing here, the mount is nosuid and no_new_privs is set
      shown by POLICY filesystem.mounts["/data"]
      hide it: --set 'filesystem.mask["/data/bin/become"]="not for the command"'

what can be written on PATH
  /data/bin/tool
      a program on PATH that can be replaced
      shown by POLICY filesystem.mounts["/data/bin/tool"]
      hide it: --set 'env.set.PATH="/work/bin"'
  /work/bin
      a directory on PATH: whoever can write there decides what a name starts
      shown by POLICY filesystem.mounts["/work"]
      hide it: --set 'env.set.PATH="/data/bin"'

files that are known to hold secrets, readable
  /data/home/.netrc
      logins for machines, in plain text
      shown by POLICY filesystem.mounts["/data"]
      hide it: --set 'filesystem.mask["/data/home/.netrc"]="not for the command"'
  /data/home/.ssh/id_rsa
      an SSH key: logs in as its owner wherever the public half is trusted
      shown by POLICY filesystem.mounts["/data"]
      hide it: --set 'filesystem.mask["/data/home/.ssh/id_rsa"]="not for the command"'
  /work/app/.aws/credentials
      AWS access keys
      shown by POLICY filesystem.mounts["/work"]
      hide it: --set 'filesystem.mask["/work/app"]="not for the command"'

variables that look like secrets
  DEPLOY_TOKEN
      named as a token is
      shown by POLICY env.set.DEPLOY_TOKEN
      hide it: --set 'env.set.DEPLOY_TOKEN=null'
"""


class Exposure(SandboxTest):

    def expose(self, policy, *settings, code=0, env=None):
        options = [word for setting in settings for word in ("--set", setting)]
        run = self.belljar("explain", "--exposure", "--json", "--policy", policy, *options, env=env)
        self.assertEqual((run.code, run.err), (code, ""), str(run))
        return run.json()

    def make_world(self):
        for name in ("data/run", "data/home/.ssh", "data/bin"):
            self.make_directory(name)
        for name in ("work/bin", "work/app/.aws"):
            self.make_directory(name, owner=self.uid)
        self.listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.listener.close)
        self.listener.bind(str(self.dir / "data/run/agent.sock"))
        os.chmod(self.dir / "data/run/agent.sock", 0o666)
        os.mkfifo(self.dir / "data/run/control")
        os.chmod(self.dir / "data/run/control", 0o644)
        self.make_file("data/bin/become", "#!/bin/sh\n", mode=0o6755)
        self.make_file("data/bin/tool", "#!/bin/sh\n", self.uid, 0o755)
        self.make_file("data/home/.netrc", "x")
        self.make_file("data/home/.ssh/id_rsa", "x")
        self.make_file("work/app/.aws/credentials", "x", self.uid)
        # What is not an exposure: nobody may read it, it is a link, it is masked, it is a public half.
        self.make_file("data/home/.pgpass", "x", 0 if self.privileged else None, 0o000)
        self.make_link("data/home/.git-credentials", "/etc/passwd")
        self.make_file("data/home/.npmrc", "x")
        self.make_file("data/home/.ssh/id_rsa.pub", "x")
        tool = str(self.dir / "data/bin/tool")
        return self.policy({
            "filesystem": {"workspace": None, "mask": {"/data/home/.npmrc": "a test"}, "mounts": {
                **NO_SYSTEM,
                "/data": {"type": "bind", "source": str(self.dir / "data")},
                "/data/bin/tool": {"type": "bind", "source": tool, "readonly": False},
                "/work": {"type": "bind", "source": str(self.work), "readonly": False}}},
            "env": {"pass": ["LANG"], "set": {"PATH": "/work/bin:/data/bin", "DEPLOY_TOKEN": "x", "EDITOR": "vi"}}})

    @back_ends("modern")
    def test_the_report_on_a_small_root_is_the_written_one(self):
        policy = self.make_world()
        run = self.belljar("explain", "--exposure", "--policy", policy)
        self.assertEqual((run.code, run.err), (0, ""), str(run))
        about = os.stat(self.dir / "data/bin/become")
        expected = EXPOSED.replace("UID", str(self.uid)).replace("OWNER", str(about.st_uid)).replace(
            "GROUP", str(about.st_gid))
        lines = {member: line for member, line in self.lines_of(policy, (
            '"/data": {', '"/data/bin/tool": {', '"/work": {', '"DEPLOY_TOKEN": '))}
        for member, path in (('"/data": {', 'filesystem.mounts["/data"]'), ('"/work": {', 'filesystem.mounts["/work"]'),
                             ('"/data/bin/tool": {', 'filesystem.mounts["/data/bin/tool"]'),
                             ('"DEPLOY_TOKEN": ', "env.set.DEPLOY_TOKEN")):
            expected = expected.replace(f"POLICY {path}\n", f"{lines[member]} {path}\n")
        self.assertMultiLineEqual(run.out, expected)

    @staticmethod
    def lines_of(policy, members):
        """(member, "FILE:LINE:COLUMN"): of an object its key's, of a text its own."""
        for number, line in enumerate(open(policy, encoding="utf-8"), 1):
            for member in members:
                if line.strip().startswith(member):
                    column = (line.index('"') if member.endswith("{") else line.index(": ") + 2) + 1
                    yield member, f"{policy}:{number}:{column}"

    @back_ends("modern")
    def test_each_finding_is_gone_after_its_change(self):
        policy = self.make_world()
        found = self.expose(policy)["findings"]
        self.assertEqual({finding["kind"] for finding in found},
                         {"unix-socket", "fifo", "privileged-file", "writable-on-path", "secret-file", "secret-variable"})
        for finding in found:
            with self.subTest(what=finding["what"]):
                left = self.expose(policy, finding["change"])["findings"]
                self.assertEqual([other["what"] for other in left if other["what"] == finding["what"]
                                  and other["kind"] == finding["kind"]], [])
                self.assertGreaterEqual(len(left), len(found) - 2)

    @back_ends("modern")
    def test_a_root_that_shows_nothing_exposes_nothing(self):
        policy = self.policy({"filesystem": {"mounts": NO_SYSTEM, "workspace": None}, "env": {"pass": ["LANG"]}})
        self.assertEqual(self.expose(policy, env=environment(MY_TOKEN="x"))["findings"], [])

    @back_ends("modern")
    def test_a_variable_that_is_passed_on_is_found_and_its_change_holds_it_back(self):
        policy = self.policy({"filesystem": {"mounts": NO_SYSTEM, "workspace": None}, "env": {"pass": ["*"]}})
        env = environment(MY_TOKEN="x", DATABASE_URL="postgres://me:hunter2@db/x")
        found = {finding["what"]: finding for finding in self.expose(policy, env=env)["findings"]}
        self.assertEqual(set(found), {"MY_TOKEN", "DATABASE_URL"})
        self.assertNotIn("hunter2", json.dumps(found))
        for name, finding in found.items():
            left = self.expose(policy, finding["change"], env=env)["findings"]
            self.assertEqual([other["what"] for other in left], [other for other in found if other != name])

    @back_ends("modern")
    def test_abstract_sockets_count_where_the_network_is_shared_without_a_scope(self):
        name = f"belljar-test-{os.getpid()}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("\0" + name)
            shared = self.policy({"filesystem": {"mounts": NO_SYSTEM, "workspace": None}, "network": {"mode": "shared"}})
            own = [finding for finding in self.expose(shared)["findings"] if finding["what"] == "@" + name]
            self.assertEqual([finding["kind"] for finding in own], ["abstract-socket"])
            self.assertIn("network.mode", own[0]["policy"])
            self.assertEqual(self.expose(shared, own[0]["change"])["findings"], [])
            self.assertEqual(self.expose(shared, "network.mode=none")["findings"], [])

    @as_root
    @callers("root")
    @back_ends("modern")
    def test_a_device_counts_on_a_mount_that_has_devices(self):
        self.make_directory("data")
        os.mknod(self.dir / "data/null", 0o666 | 0o020000, os.makedev(1, 3))
        os.chmod(self.dir / "data/null", 0o666)
        for nodev, found in ((False, ["/data/null"]), (True, [])):
            policy = self.policy({"filesystem": {"workspace": None, "mounts": {
                **NO_SYSTEM, "/data": {"type": "bind", "source": str(self.dir / "data"), "nodev": nodev}}}})
            findings = self.expose(policy)["findings"]
            self.assertEqual([finding["what"] for finding in findings], found)
        policy = self.policy({"filesystem": {"workspace": None, "mounts": {
            **NO_SYSTEM, "/data": {"type": "bind", "source": str(self.dir / "data"), "nodev": False}}}})
        self.assertEqual(self.expose(policy, self.expose(policy)["findings"][0]["change"])["findings"], [])

    @back_ends("modern")
    def test_an_overlay_exposes_what_is_seen_of_its_layers_once(self):
        for name in ("low/.netrc", "high/.netrc", "low/.npmrc", "low/home/.pgpass"):
            self.make_directory(os.path.dirname(name))
            self.make_file(name, "x")
        (self.dir / "high/home").touch()
        policy = self.policy({"filesystem": {"workspace": None, "mounts": {**NO_SYSTEM, "/o": {
            "type": "overlay", "lower": [str(self.dir / "low"), str(self.dir / "high")]}}}})
        findings = self.expose(policy)["findings"]
        self.assertEqual([finding["what"] for finding in findings], ["/o/.netrc", "/o/.npmrc"])
        self.assertEqual([finding["what"] for finding in self.expose(policy, findings[0]["change"])["findings"]],
                         ["/o/.npmrc"])

    @back_ends("modern")
    def test_what_is_not_walked_is_said(self):
        policy = self.policy({"filesystem": {"workspace": None, "mounts": {
            **NO_SYSTEM, "/sys": {"type": "bind", "source": "/sys"}}}})
        report = self.expose(policy, code=3)
        self.assertEqual(report["not_looked_at"], ["/sys: the kernel's own file system"])

    @back_ends("modern")
    def test_json_goes_with_exposure(self):
        run = self.belljar("explain", "--json")
        self.assertEqual((run.code, run.out), (2, ""))
        self.assertIn("--json requires --exposure", run.err)


if __name__ == "__main__":
    main()
