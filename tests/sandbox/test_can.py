"""`explain --can`: what it answers is what a run finds."""

import os
import platform
import re
import socket
import stat

from harness import AS_ROOT, SandboxTest, as_root, back_ends, callers, main

FILES = ("/etc/passwd", "/usr/bin/env", "/usr", "/bin/sh", "/work/own", "/work/closed", "/work/link", "/work/never",
         "/work/dir", "/work/dir/new", "/work/no-dir/new", "/work/own/below", "/data", "/data/file", "/data/out",
         "/data//below/../file", "/data/hidden", "/data/masked", "/data/masked/file", "/data/shown/file",
         "/data/socket", "/data/null", "/with-devices/null", "/noexec/run", "/nothing", "/made",
         "/tmp", "/tmp/new", "/tmp/no-dir/new", "/tmp/box", "/tmp/box/new", "/tmp/closed-box", "/tmp/closed-box/new",
         "/tmp/made", "/tmp/made-closed", "/tmp/run", "/tmp/made/below", "/way", "/way/to", "/way/to/mount",
         "/closed", "/closed/new", "/dark", "/dark/new", "/still", "/still/new", "/no-programs/run",
         "/no-way", "/no-way/file", "/optional", "/overlay", "/overlay/file", "/overlay/new", "/overlay/no-dir/new")
VERBS = ("read", "write", "exec")


class Can(SandboxTest):

    def ask(self, policy, *questions, **more):
        """{question: (yes?, why)}"""
        run = self.belljar("explain", "--policy", policy, *(f"--can={question}" for question in questions), **more)
        found = dict(re.findall(r"^(\S+?:\S+): ((?:yes|no): .*)$", run.out, re.MULTILINE))
        self.assertEqual(len(found), len(questions), str(run))
        return {question: tuple(text.split(": ", 1)) for question, text in found.items()}, run.code

    def make_world(self):
        """One of everything that a path can be."""
        for name in ("data", "data/below", "data/masked", "data/shown", "shown"):
            self.make_directory(name)
        for name in ("work/dir", "bin", "layer"):
            self.make_directory(name, self.uid)
        for name, owner, mode in (("work/own", self.uid, 0o700), ("work/closed", 0 if self.privileged else None, 0o000),
                                  ("data/file", None, 0o755), ("data/hidden", None, 0o644), ("data/masked/file", None, 0o644),
                                  ("shown/file", None, 0o644), ("layer/file", self.uid, 0o644)):
            self.make_file(name, "x", owner, mode)
        self.make_link("work/link", "/data/file")
        self.make_link("data/out", "/etc/passwd")
        self.make_file("bin/run", "#!/bin/sh\n", self.uid, 0o755)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.dir / "data/socket"))
        os.chmod(self.dir / "data/socket", 0o777)
        if AS_ROOT:
            os.mknod(self.dir / "data/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
            os.chmod(self.dir / "data/null", 0o666)
        run = {"type": "file", "content": "#!/bin/sh\n", "mode": "0755"}
        data = {"type": "bind", "source": str(self.dir / "data")}
        return self.policy({"filesystem": {
            "mounts": {
                "/etc/passwd": {"type": "bind", "source": "/etc/passwd"},
                "/work": {"type": "bind", "source": str(self.work), "readonly": False},
                "/data": data,
                "/data/shown": {"type": "bind", "source": str(self.dir / "shown")},
                "/with-devices": {**data, "nodev": False},
                "/noexec": {"type": "bind", "source": str(self.dir / "bin"), "noexec": True},
                "/optional": {"type": "bind", "source": str(self.work / "missing"), "optional": True, "readonly": False},
                "/made": {"type": "file", "content": "x"},
                "/tmp/made": {"type": "file", "content": "x", "mode": "0644"},
                "/tmp/made-closed": {"type": "file", "content": "x", "mode": "0000"},
                "/tmp/run": run,
                "/tmp/box": {"type": "dir"},
                "/tmp/closed-box": {"type": "dir", "mode": "0555"},
                "/way/to/mount": {"type": "tmpfs"},
                "/closed": {"type": "tmpfs", "mode": "0500"},
                "/dark": {"type": "tmpfs", "mode": "0300"},
                "/still": {"type": "tmpfs", "readonly": True},
                "/no-programs": {"type": "tmpfs", "noexec": True},
                "/no-programs/run": run,
                "/no-way": {"type": "tmpfs", "mode": "0600"},
                "/no-way/file": {"type": "bind", "source": "/etc/passwd"},
                "/overlay": {"type": "overlay", "lower": [str(self.dir / "layer")]}},
            "mask": {"/data/hidden": "a test", "/data/masked": "a test", "/work/never": "a test"}}})

    def check_answers(self, policy, questions, **more):
        """Each answer is what an attempt inside finds."""
        answers, _ = self.ask(policy, *questions, **more)
        code = """
            import subprocess
            say({question: subprocess.run(['/belljar', 'probe', '--try', question.replace(':', ' ', 1)],
                                          capture_output=True, text=True).stdout.strip() for question in %r})
        """ % (questions,)
        # With sanitizers each of the questions is a program that takes its time.
        found = self.inside(code, policy=policy, timeout=300, **more).json()
        differ = {question: (answers[question], real) for question, real in found.items()
                  if (answers[question][0] == "yes") != (real == "allowed")}
        self.assertEqual(differ, {})
        return found

    @back_ends("modern")
    def test_the_answers_are_what_the_command_finds(self):
        questions = [f"{verb}:{path}" for verb in VERBS for path in FILES]
        found = self.check_answers(self.make_world(), questions)
        self.assertGreater(list(found.values()).count("allowed"), 40, found)
        self.assertGreater(len(set(found.values())), 5, found)

    @back_ends("modern")
    def test_a_mask_hides_the_mounts_below_it(self):
        self.make_directory("data/shown")
        self.make_directory("shown")
        self.make_file("shown/file", "x")
        changes = {"filesystem": {"mounts": {"/data": {"type": "bind", "source": str(self.dir / "data")},
                                             "/data/shown": {"type": "bind", "source": str(self.dir / "shown")}}}}
        found = self.check_answers(self.policy(changes), ["read:/data/shown/file", "read:/data"])
        self.assertEqual(set(found.values()), {"allowed"})
        changes["filesystem"]["mask"] = {"/data": "a test"}
        found = self.check_answers(self.policy(changes), ["read:/data/shown/file", "read:/data"])
        self.assertEqual(found, {"read:/data/shown/file": "ENOENT", "read:/data": "allowed"})

    @as_root
    @back_ends("modern")
    def test_the_groups_are_the_sessions(self):
        path = self.make_file("grouped", "x", mode=0o640)
        os.chown(path, 0, 4242)
        policy = self.policy({"identity": {"enforce": "prefer"},
                              "filesystem": {"mounts": {"/file": {"type": "bind", "source": str(path)}}}})
        found = self.check_answers(policy, ["read:/file"], groups=(4242,))
        self.assertEqual(found["read:/file"], "EACCES" if self.privileged else "allowed")
        if self.privileged:
            policy = self.policy({"identity": {"groups": [4242]},
                                  "filesystem": {"mounts": {"/file": {"type": "bind", "source": str(path)}}}})
            self.assertEqual(self.check_answers(policy, ["read:/file"]), {"read:/file": "allowed"})

    @callers("root")
    @back_ends("modern")
    def test_root_inside_has_no_capability_over_the_hosts_files(self):
        path = self.make_file("private", "x", self.uid, 0o600)
        policy = self.policy({"identity": {"uid": 0, "gid": 0}, "filesystem": {"workspace": None, "mounts": {
            "/file": {"type": "bind", "source": str(path)}, "/passwd": {"type": "bind", "source": "/etc/passwd"}}}})
        found = self.check_answers(policy, ["read:/file", "read:/passwd"])
        self.assertEqual(found, {"read:/file": "EACCES", "read:/passwd": "allowed"})

    @callers("root")
    @back_ends("modern")
    def test_what_a_kept_capability_overrides_is_not_guessed(self):
        self.make_file("work/closed", "x", self.uid, 0o000)
        changes = {"capabilities": ["CAP_DAC_OVERRIDE"]}
        questions = (f"read:{self.work}/closed", "read:/etc/passwd")
        run = self.belljar("explain", "--policy", self.policy(changes), "--can", questions[0])
        self.assertEqual((run.code, run.out), (3, ""))
        self.assertIn("is seen by trying, inside", run.err)
        self.assertEqual(self.ask(self.policy(), questions[0])[0][questions[0]][0], "no")

    @back_ends("modern")
    def test_a_file_is_answered_as_the_filter_does(self):
        writes = {"action": "EXDEV", "when": [{"arg2": {"mask": 3, "!=": 0}}], "otherwise": "allow"}
        older = {"action": "EXDEV", "when": [{"arg1": {"mask": 3, "!=": 0}}], "otherwise": "allow"}
        rules = {"openat": writes, "openat2": "ENOSYS", **({"open": older} if platform.machine() == "x86_64" else {})}
        policy = self.policy({"syscalls": {"rules": rules}})
        found = self.check_answers(policy, ["read:/usr/bin/env", "write:/tmp/new", "exec:/usr/bin/env"])
        self.assertEqual(found, {"read:/usr/bin/env": "allowed", "write:/tmp/new": "EXDEV", "exec:/usr/bin/env": "allowed"})
        question = "write:/tmp/new"
        self.assertRegex(self.ask(policy, question)[0][question][1], r"refuses openat\(2\) .*syscalls.rules.openat$")
        self.assertEqual(self.check_answers(self.policy(), [question]), {question: "allowed"})

    @back_ends("modern")
    def test_each_answer_names_who_decided(self):
        answers, code = self.ask(self.make_world(), "write:/data/file", "exec:/noexec/run", "read:/data/hidden",
                                 "read:/work/closed", "connect:127.0.0.1:80")
        self.assertEqual(code, 1)
        for question, words in (("write:/data/file", r'read-only, .*:\d+:\d+ filesystem.mounts\["/data"\]'),
                                ("exec:/noexec/run", r'noexec, .*filesystem.mounts\["/noexec"\]'),
                                ("read:/data/hidden", r'hidden by .*filesystem.mask\["/data/hidden"\]'),
                                ("read:/work/closed", rf"does not allow it to uid {self.uid} \(mode 0000"),
                                ("connect:127.0.0.1:80", r"own loopback, .*network.mode")):
            self.assertEqual(answers[question][0], "no", question)
            self.assertRegex(answers[question][1], words)

    @back_ends("modern")
    def test_a_port_is_refused_only_where_this_kernel_does(self):
        policy = self.policy({"network": {"mode": "shared"}, "landlock": {"connect_tcp": [443], "enforce": "prefer"}})
        answers, _ = self.ask(policy, "connect:192.0.2.1:443", "connect:192.0.2.1:80")
        self.assertEqual([answer[0] for answer in answers.values()], ["yes", "no"])
        run = self.belljar("explain", "--policy", policy, "--can", "connect:192.0.2.1:80",
                           wrap=[self.tool("landlock_abi"), "3"])
        self.assertEqual(run.code, 0, str(run))

    @back_ends("modern")
    def test_a_connection_is_answered_as_the_filter_does(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            code = f"""
                import errno, socket
                try:
                    socket.create_connection(('127.0.0.1', {port}), 5).close(); say('open')
                except OSError as error: say(errno.errorcode[error.errno])
            """
            inet, shorter = {"arg0": {"==": "AF_INET"}}, {"arg2": {"==": 16}}
            for rules, verdict in (({}, "open"), ({"connect": "EPERM"}, "EPERM"), ({"socket": "EXDEV"}, "EXDEV"),
                                   ({"socket": {"action": "EXDEV", "when": [inet], "otherwise": "allow"}}, "EXDEV"),
                                   ({"connect": {"action": "EPERM", "when": [shorter], "otherwise": "allow"}}, "EPERM")):
                with self.subTest(rules=rules):
                    policy = self.policy({"network": {"mode": "shared"}, "syscalls": {"rules": rules}})
                    question = f"connect:127.0.0.1:{port}"
                    answer = self.ask(policy, question)[0][question]
                    self.assertEqual(self.inside(code, policy=policy).json(), verdict)
                    self.assertEqual(answer[0], "yes" if verdict == "open" else "no", answer)
                    if rules:
                        name, = rules
                        self.assertRegex(answer[1], rf"refuses {name}\(2\) for it \({verdict}\), .*syscalls.rules.{name}$")

    @back_ends("modern")
    def test_an_address_that_is_none_is_no_question(self):
        policy = self.policy({"network": {"mode": "shared"}})
        for address, words in (("garbage:80", "no IP address"), ("999.1.1.1:80", "no IP address"), ("a b;c:80", "no IP address"),
                               ("localhost:80", "names are not looked up"), ("::1:80", "in brackets"), ("::1", "in brackets"),
                               ("2001:db8::1:99999", "in brackets"), ("[garbage]:80", "no IPv6 address"),
                               ("[127.0.0.1]:80", "no IPv6 address"), ("127.0.0.1", "there is no port"),
                               ("127.0.0.1:0", "no number from 1"), ("127.0.0.1:65536", "no number from 1"),
                               ("127.0.0.1:8x", "no number from 1"), (":80", "no IP address")):
            run = self.belljar("explain", "--policy", policy, "--can", f"connect:{address}")
            self.assertEqual((run.code, run.out), (2, ""), f"{address}: {run}")
            self.assertIn(words, run.err, address)
        for address in ("127.0.0.1:80", "[::1]:80", "[::ffff:192.0.2.1]:443"):
            run = self.belljar("explain", "--policy", policy, "--can", f"connect:{address}")
            self.assertEqual((run.code, run.err), (0, ""), f"{address}: {run}")

    @back_ends("modern")
    def test_what_cannot_be_told_is_not_guessed(self):
        run = self.belljar("explain", "--policy", self.policy(), "--can", "read:/proc/1/environ")
        self.assertEqual((run.code, run.out), (3, ""))
        run = self.belljar("explain", "--policy", self.policy(), "--can", "read:relative")
        self.assertEqual((run.code, run.out), (2, ""))
        self.assertIn("is no question", run.err)


if __name__ == "__main__":
    main()
