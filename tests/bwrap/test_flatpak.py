"""A real caller: Flatpak, with a runtime and an application that are made here of the host's own programs."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import STAGE, SandboxTest, as_root, callers, environment, main
from test_bwrap import BWRAP

ARCHITECTURE = os.uname().machine
LOADER = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}[ARCHITECTURE]
RUNTIME = f"org.example.Platform/{ARCHITECTURE}/1"
SCRIPT = """#!/bin/sh
echo "$FLATPAK_ID is process $$"
cat "$1"
echo new > "$1" || echo unchanged
ls -d /home /var/tmp/beside "$2"
"""


def flatpak(*words, home, **more):
    """Flatpak with files of its own: nothing of the host's installations is read or changed."""
    own = {"HOME": str(home), "XDG_DATA_HOME": f"{home}/data", "XDG_RUNTIME_DIR": f"{home}/run",
           "FLATPAK_SYSTEM_DIR": f"{home}/system"}
    prefix = more.pop("prefix", [])
    return subprocess.run([*prefix, "flatpak", *map(str, words)], env=environment(**own, **more.pop("env", {})),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, **more)


def made(*words, home):
    done = flatpak(*words, home=home)
    if done.returncode != 0:
        raise AssertionError(f"flatpak {words}: {done.stdout}{done.stderr}")


@functools.cache
def repository():
    """Holds the runtime, a shell and a few programs, and the application, a script."""
    place = STAGE / f"flatpak-{os.getpid()}"
    files = place / "runtime" / "files"
    (files / "bin").mkdir(parents=True)
    (files / LOADER).parent.mkdir(parents=True, exist_ok=True)
    libraries = files / "lib" / f"{ARCHITECTURE}-linux-gnu"
    libraries.mkdir(parents=True)
    for program in ("bash", "cat", "ls"):
        shutil.copy(f"/usr/bin/{program}", files / "bin")
        for line in subprocess.check_output(["ldd", f"/usr/bin/{program}"], text=True).splitlines():
            shown = [word for word in line.split() if word.startswith("/")]
            for library in shown:
                shutil.copy(library, libraries)
    shutil.copy(f"/{LOADER}", files / LOADER)
    (files / "bin" / "sh").symlink_to("bash")
    (place / "runtime" / "metadata").write_text(f"[Runtime]\nname=org.example.Platform\nruntime={RUNTIME}\nsdk={RUNTIME}\n")
    home = place / "home"
    (home / "run").mkdir(parents=True, mode=0o700)
    repo = place / "repo"
    made("build-export", "--runtime", "--files=files", "--disable-sandbox", repo, place / "runtime", "1", home=home)
    made("--user", "remote-add", "--no-gpg-verify", "here", repo, home=home)
    made("--user", "install", "-y", "--noninteractive", "here", f"runtime/{RUNTIME}", home=home)
    app = place / "app"
    made("build-init", app, "org.example.App", "org.example.Platform", "org.example.Platform", "1", home=home)
    (app / "files" / "bin").mkdir(parents=True, exist_ok=True)
    (app / "files" / "bin" / "hello").write_text(SCRIPT)
    (app / "files" / "bin" / "hello").chmod(0o755)
    made("build-finish", app, "--command=hello", home=home)
    made("build-export", "--disable-sandbox", repo, app, "1", home=home)
    subprocess.run(["chmod", "-R", "a+rX", place], check=True)
    return repo


class Flatpak(SandboxTest):
    def install(self, home):
        """By root for everybody: a plain user's installation asks the system's bus for parental controls."""
        (home / "run").mkdir(parents=True, mode=0o700)
        made("--user", "remote-add", "--no-gpg-verify", "here", repository(), home=home)
        made("--user", "install", "-y", "--noninteractive", "here", "org.example.App//1", home=home)
        if self.caller == "user":
            subprocess.run(["chown", "-R", f"{self.uid}:{self.uid}", home], check=True)

    @as_root
    @callers("root", "user")
    def test_an_application_runs_with_its_files_and_without_the_others(self):
        home = self.dir / "home"
        self.install(home)
        shown = self.make_file("shown", "old\n", owner=self.uid, mode=0o666)
        hidden = self.make_file("hidden", "old\n", owner=self.uid, mode=0o666)
        wrapper = self.make_file("bwrap", f'#!/bin/sh\necho "$*" >> {self.dir}/seen\nexec {BWRAP} "$@"\n', mode=0o755)
        self.make_file("seen", owner=self.uid, mode=0o666)
        back = {"BELLJAR_BACK_END": "legacy"} if self.back_end == "legacy" else {}
        run = flatpak("--user", "run", f"--filesystem={shown}:ro", "org.example.App", shown, hidden, home=home, cwd="/",
                      prefix=list(map(str, self.prefix())), env={"FLATPAK_BWRAP": str(wrapper), **back})
        self.assertIn("hello", (self.dir / "seen").read_text(), "it has not started the program under test")
        self.assertRegex(run.stdout, r"^org.example.App is process \d+\nold\nunchanged\n", run.stderr)
        self.assertIn(f"{hidden}': No such file or directory", run.stderr)
        self.assertEqual(shown.read_text(), "old\n")


if __name__ == "__main__":
    main()
