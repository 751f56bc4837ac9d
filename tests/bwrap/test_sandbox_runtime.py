"""A real caller: Anthropic's sandbox-runtime, which finds this program as `bwrap` in PATH, with its rules on files and
on the network. The package comes from npm's registry, by the digests of sandbox_runtime/package-lock.json."""

import functools
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import STAGE, SandboxTest, callers, environment, give, main
from test_bwrap import BWRAP

HERE = pathlib.Path(__file__).resolve().parent


@functools.cache
def installed():
    """The package's program. A registry that cannot be reached fails the tests that need it."""
    place = STAGE / f"sandbox-runtime-{os.getpid()}"
    shutil.copytree(HERE / "sandbox_runtime", place)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=place,
                   check=True, timeout=300, stdout=subprocess.DEVNULL)
    subprocess.run(["chmod", "-R", "a+rX", place], check=True)
    return place / "node_modules" / ".bin" / "srt"


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from the host\n")

    def log_message(self, *_):
        pass


class SandboxRuntime(SandboxTest):
    def settings(self, domains=()):
        # Inside, root is root of its own files alone.
        me = 0 if self.caller == "root" else self.uid
        give(self.work, me)
        for name in ("work/kept", "secret"):
            self.make_file(name, "old\n", owner=me)
        return self.make_file("settings.json", json.dumps({
            "network": {"allowedDomains": list(domains), "deniedDomains": []},
            "filesystem": {"denyRead": [str(self.dir / "secret")], "allowWrite": [str(self.work)],
                           "denyWrite": [str(self.work / "kept")]}}))

    def srt(self, settings, script, seen=None):
        """Its standard output. `seen` is a file that says which bwrap it has started."""
        bin_ = self.dir / "bin"
        bin_.mkdir(exist_ok=True)
        wrapper = bin_ / "bwrap"
        wrapper.write_text(f'#!/bin/sh\necho "$*" >> {self.dir}/seen\nexec {BWRAP} "$@"\n')
        wrapper.chmod(0o755)
        self.make_file("seen", owner=self.uid, mode=0o666)
        home = self.dir / "home"
        home.mkdir(exist_ok=True)
        give(home, self.uid)
        back = {"BELLJAR_BACK_END": "legacy"} if self.back_end == "legacy" else {}
        path = f"{bin_}:{environment()['PATH']}"
        return subprocess.run([*map(str, self.prefix()), str(installed()), "-s", str(settings), "-c", script],
                              cwd=self.work, env=environment(PATH=path, HOME=str(home), TMPDIR=str(home), **back),
                              text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)

    @callers("root", "user")
    def test_its_rules_on_files_hold(self):
        run = self.srt(self.settings(), "echo new > made; cat ../secret; echo new > kept; touch ../beside; exit 7")
        self.assertEqual((run.returncode, run.stdout), (7, ""), run.stderr)
        self.assertIn("--unshare-net", (self.dir / "seen").read_text(), "it has not started the program under test")
        self.assertEqual((self.work / "made").read_text(), "new\n")
        self.assertEqual((self.work / "kept").read_text(), "old\n")
        self.assertFalse((self.dir / "beside").exists())

    @callers("root", "user")
    def test_its_rules_on_the_network_hold(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        port = server.server_address[1]
        by_proxy = f"NO_PROXY= no_proxy= curl -sS -m 60 http://%s:{port}/"
        run = self.srt(self.settings(domains=["localhost"]), by_proxy % "localhost")
        self.assertEqual((run.returncode, run.stdout), (0, "from the host\n"), run.stderr)
        run = self.srt(self.settings(domains=["localhost"]), by_proxy % "127.0.0.1")
        self.assertNotIn("from the host", run.stdout, "another name has no way out")
        run = self.srt(self.settings(domains=["localhost"]), f"curl -sS -m 60 --noproxy '*' http://127.0.0.1:{port}/")
        self.assertNotEqual(run.returncode, 0, "the host's own loopback is out of reach")


if __name__ == "__main__":
    main()
