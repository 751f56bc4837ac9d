"""`explain --can`: what it answers is what a run finds."""

import re

from harness import SandboxTest, back_ends, main

FILES = ("/etc/passwd", "/usr/bin/env", "/usr", "/bin/sh", "/tmp", "/work/own", "/work/closed", "/work/link",
         "/data/file", "/data/out", "/data/hidden", "/noexec/run", "/nothing", "/made")
VERBS = ("read", "write", "exec")


class Can(SandboxTest):

    def ask(self, policy, *questions):
        """{question: (yes?, why)}"""
        run = self.belljar("explain", "--policy", policy, *(f"--can={question}" for question in questions))
        found = dict(re.findall(r"^(\S+?:\S+): ((?:yes|no): .*)$", run.out, re.MULTILINE))
        self.assertEqual(len(found), len(questions), str(run))
        return {question: tuple(text.split(": ", 1)) for question, text in found.items()}, run.code

    def make_world(self):
        self.make_directory("data")
        for name, owner, mode in (("work/own", self.uid, 0o700), ("work/closed", 0 if self.privileged else None, 0o000),
                                  ("data/file", None, 0o755), ("data/hidden", None, 0o644)):
            self.make_file(name, "x", owner, mode)
        self.make_link("work/link", "/data/file")
        self.make_link("data/out", "/etc/passwd")
        self.make_directory("bin", self.uid)
        self.make_file("bin/run", "#!/bin/sh\n", self.uid, 0o755)
        return self.policy({"filesystem": {
            "mounts": {
                "/etc/passwd": {"type": "bind", "source": "/etc/passwd"},
                "/work": {"type": "bind", "source": str(self.work), "readonly": False},
                "/data": {"type": "bind", "source": str(self.dir / "data")},
                "/noexec": {"type": "bind", "source": str(self.dir / "bin"), "noexec": True},
                "/made": {"type": "file", "content": "x"}},
            "mask": {"/data/hidden": "a test"}}})

    @back_ends("modern")
    def test_the_answers_are_what_the_command_finds(self):
        policy = self.make_world()
        answers, _ = self.ask(policy, *(f"{verb}:{path}" for verb in VERBS for path in FILES))
        # access(2) does not know that a mask's device cannot be opened.
        code = """
            def opens(path, mode):
                return os.path.isdir(path) or probe_open(path, mode) == 'open'
            modes = {'read': os.O_RDONLY, 'write': os.O_WRONLY}
            say({f'{verb}:{path}': os.access(path, bit) and (verb not in modes or opens(path, modes[verb]))
                 for verb, bit in (('read', os.R_OK), ('write', os.W_OK), ('exec', os.X_OK)) for path in %r})
        """ % (FILES,)
        found = self.inside(code, policy=policy).json()
        differ = {question: (answers[question], real) for question, real in found.items()
                  if (answers[question][0] == "yes") != real}
        self.assertEqual(differ, {})
        self.assertGreater(sum(found.values()), 8)

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
    def test_what_cannot_be_told_is_not_guessed(self):
        run = self.belljar("explain", "--policy", self.policy(), "--can", "read:/proc/1/environ")
        self.assertEqual((run.code, run.out), (3, ""))
        run = self.belljar("explain", "--policy", self.policy(), "--can", "read:relative")
        self.assertEqual((run.code, run.out), (2, ""))
        self.assertIn("is no question", run.err)


if __name__ == "__main__":
    main()
