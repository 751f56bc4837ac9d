"""The same random arguments to bubblewrap and to the drop-in: both take them or both refuse them, with the
same exit status. Seeded, so that what fails once fails again; differences are those of docs/bwrap.md."""

import pathlib
import random
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import SandboxTest, back_ends, callers, main
from test_bwrap import BWRAP

SEED = 9
ROUNDS = 150
THEIRS = shutil.which("bwrap") or "/usr/bin/bwrap"

# Options of Debian 12's bubblewrap 0.8.0, each with values that are good and values that are not. What is listed as
# a difference in docs/bwrap.md (empty sources, ids beyond 32 bits) is not among them.
SOURCES = ("/usr", "/etc", "/etc/passwd", "/no/such", "/usr/../etc", "/bin")
TARGETS = ("/tmp/a", "/tmp/a/b", "/tmp/c", "/mnt", "/tmp//d", "/tmp/./e")
NUMBERS = ("0", "7", "-1", "x", "", "1000")
OPTIONS = {
    **{name: () for name in ("--unshare-user", "--unshare-user-try", "--unshare-ipc", "--unshare-pid", "--unshare-net",
                             "--unshare-uts", "--unshare-cgroup", "--unshare-cgroup-try", "--unshare-all", "--share-net",
                             "--clearenv", "--new-session", "--die-with-parent", "--as-pid-1", "--disable-userns",
                             "--not-an-option", "-x")},
    **{name: (SOURCES, TARGETS) for name in ("--bind", "--ro-bind", "--dev-bind", "--bind-try", "--ro-bind-try",
                                             "--dev-bind-try")},
    **{name: (TARGETS,) for name in ("--tmpfs", "--dir", "--proc", "--dev", "--remount-ro")},
    "--symlink": (("a", "/etc", "b"), TARGETS),
    "--chmod": (("0755", "1777", "9", "", "10000"), TARGETS),
    "--perms": (("0755", "1777", "9", "", "10000"),),
    "--size": (("4096", "0x1000", "0", "-1", "", "1k"),),
    "--uid": (NUMBERS,), "--gid": (NUMBERS,),
    "--hostname": (("inner",),),
    "--chdir": (("/", "/tmp", "/no/such"),),
    "--setenv": (("A", "B", ""), ("1", "")),
    "--unsetenv": (("A", "HOME"),),
    "--cap-add": (("CAP_KILL", "ALL", "KILL", "CAP_NONE"),), "--cap-drop": (("CAP_KILL", "ALL", "x"),),
    "--lock-file": (("/etc/passwd", "/no/such"),),
    "--seccomp": (("x", "-1", "0a"),), "--sync-fd": (("x", "-1"),), "--args": (("x", "-5"),),
}
PAYLOADS = (("/usr/bin/true",), ("/usr/bin/false",), ("--", "/usr/bin/true"), ("sh", "-c", "exit 9"), ("/no/such",), ())


def arguments(random_):
    words = ["--ro-bind", "/", "/", "--tmpfs", "/tmp"]
    for _ in range(random_.randrange(6)):
        name = random_.choice(list(OPTIONS))
        words += [name, *(random_.choice(values) for values in OPTIONS[name])]
    if random_.random() < 0.05:
        words.pop(random_.randrange(5, len(words)) if len(words) > 5 else -1)
    return [*words, *random_.choice(PAYLOADS)]


class Fuzz(SandboxTest):
    def status(self, binary, words):
        done = subprocess.run([*map(str, self.prefix()), str(binary), *words], capture_output=True, text=True, cwd="/",
                              stdin=subprocess.DEVNULL, timeout=30)
        return done.returncode, done.stderr.strip()

    @callers("root", "user")
    @back_ends("modern")
    def test_both_take_and_refuse_the_same(self):
        random_ = random.Random(f"{SEED} {self.caller}")
        seen = set()
        for _ in range(ROUNDS):
            words = arguments(random_)
            theirs, ours = self.status(THEIRS, words), self.status(BWRAP, words)
            seen.add(theirs[0])
            self.assertEqual(ours[0], theirs[0], f"{' '.join(map(repr, words))}\n  theirs: {theirs}\n  ours: {ours}")
        self.assertLessEqual({0, 1, 9}, seen, "the arguments meet too little")


if __name__ == "__main__":
    main()
