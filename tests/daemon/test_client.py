"""docs/clients/python/belljar_client.py, as a worker uses it: a session of real work, and everything that goes wrong."""

import functools
import http.server
import json
import pathlib
import subprocess
import sys
import threading
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/clients/python"))
import belljar_client
from belljar_client import Belljar, BelljarError, Refused, SandboxUnavailable, SessionGone
from daemon import POOL_SIZE, TOKEN, UID_BASE, processes_of
from harness import main
from v1 import V1Test, as_shipped, wait_until

MAKEFILE = "app: main.o\n\tcc -o app main.o\nmain.o: main.c\n\tcc -c main.c\n"
MAIN_C = '#include <stdio.h>\nint main(void) { puts("built"); return 0; }\n'


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


# The index of the test is on the host's loopback.
WORK = {"version": 1, "extends": ["builtin:shell@1"], "network": {"mode": "shared"}}


def package(directory):
    """A Python package that a local index serves."""
    directory.mkdir(parents=True)
    wheel = directory / "belljar_sample-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("belljar_sample.py", "ANSWER = 42\n")
        archive.writestr("belljar_sample-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: belljar-sample\nVersion: 1.0\n")
        archive.writestr("belljar_sample-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("belljar_sample-1.0.dist-info/RECORD", "")


class ClientTest(V1Test):
    def client(self, *arguments, **options):
        policies = self.make_directory("policies", mode=0o755)
        self.make_file("policies/work.json", json.dumps(WORK))
        self.face = self.v1(f"--policy-dir={policies}", *arguments, **options)
        return Belljar(f"unix:{self.face.socket_path}")

    def session(self, client, **members):
        session = client.session(policy="work", **members)
        self.addCleanup(session.close)
        return session


class Work(ClientTest):

    @as_shipped
    def test_a_session_of_real_work(self):
        client = self.client()
        index = self.dir / "index"
        package(index / "belljar-sample")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(index)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        with self.session(client, files={"Makefile": MAKEFILE, "main.c": MAIN_C}) as session:
            built = session.run_command("make -s && ./app")
            self.assertTrue(built.success, built)
            self.assertEqual(built.stdout, "built\n")
            url = f"http://127.0.0.1:{server.server_port}/"
            installed = session.run_command(f"python3 -m venv --system-site-packages env && . env/bin/activate && "
                                            f"pip install -q --index-url {url} belljar-sample && python3 -c "
                                            f"'import belljar_sample; print(belljar_sample.ANSWER)'", timeout=300)
            self.assertEqual((installed.stdout, installed.exit_code), ("42\n", 0), installed)
            self.assertIn("env/bin", session.run_command("echo $PATH").stdout, "an activated environment stays")
            job = session.start("echo listening; exec python3 -u -m http.server 8123 --bind 127.0.0.1 2>&1")
            answer = session.run_command("for i in $(seq 100); do python3 -c \"import urllib.request as r; "
                                         "print(r.urlopen('http://127.0.0.1:8123/main.c').status)\" 2>/dev/null && break; sleep 0.1; done")
            self.assertEqual(answer.stdout, "200\n")
            late = session.run_command("echo partial; sleep 600", timeout=0.7)
            self.assertEqual((late.success, late.exit_code, late.timed_out, late.stdout), (False, None, True, "partial\n"))
            self.assertEqual(job.info()["state"], "running", "the server is not the late command's")
            pieces = []
            for piece in session.stream("for i in 1 2 3; do echo step $i; done; sleep 600"):
                pieces.append(piece.text)
                if "step 3" in "".join(pieces):
                    break
            self.assertEqual("".join(pieces), "step 1\nstep 2\nstep 3\n")
            self.assertTrue(wait_until(lambda: [one["state"] for one in session.processes()].count("running") == 1),
                            "what is not listened to any more is stopped; the server is not")
            self.assertIn("GET /main.c", "".join(piece.text for piece in job.output(follow=False)))
            job.stop()
            self.assertEqual(job.wait(10)["state"], "ended")
        with self.assertRaises(SessionGone):
            session.run_command("true")

    @as_shipped
    def test_a_worker_that_is_killed_leaves_nothing(self):
        client = self.client()
        script = ("import sys, time\nsys.path.insert(0, sys.argv[1])\nfrom belljar_client import Belljar\n"
                  "session = Belljar(sys.argv[2]).session(network='none')\n"
                  "session.start('setsid sleep 600')\nprint(session.id, flush=True)\ntime.sleep(600)\n")
        worker = subprocess.Popen([sys.executable, "-c", script, str(pathlib.Path(belljar_client.__file__).parent),
                                   f"unix:{self.face.socket_path}"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        session = client.attach(worker.stdout.readline().strip())
        self.assertEqual(session.info()["state"], "running")
        worker.kill()
        self.assertTrue(wait_until(lambda: session.info()["state"] == "ended", 20))
        self.assertEqual([uid for uid in range(UID_BASE, UID_BASE + POOL_SIZE) if processes_of(uid)], [])


class Checks(ClientTest):

    @as_shipped
    def test_a_check_is_verified_failed_or_unverified_and_never_without_a_sandbox(self):
        client = self.client()
        self.assertEqual(client.run_confined(["python3", "-c", "print(1)"]).status, "verified")
        failed = client.run_confined(["python3", "-c", "import sys; sys.exit(sys.stdin.read())"], stdin="broken")
        self.assertEqual((failed.status, failed.result.exit_code, failed.result.stderr), ("failed", 1, "broken\n"))
        self.assertEqual(client.run_confined(["cat"]).result.stdout, "", "nobody's stdin is inherited")
        late = client.run_confined(["sleep", "600"], timeout=0.5)
        self.assertEqual((late.status, late.reason), ("unverified", "it did not end by itself: wall_time"))
        self.assertEqual(client.run_confined(["not-there-at-all"]).status, "unverified")
        cut = client.run_confined(["python3", "-c", f"import socket; socket.create_connection(('127.0.0.1', {self.face.daemon.port}))"])
        self.assertEqual(cut.status, "failed", "a validator has no network")
        marker = self.dir / "marker"
        gone = Belljar(f"unix:{self.dir}/nobody.sock").run_confined(["touch", str(marker)])
        self.assertEqual((gone.status, gone.reason), ("unverified", belljar_client.UNAVAILABLE))
        self.assertFalse(marker.exists())


class Wrong(ClientTest):

    @as_shipped
    def test_no_sandbox_is_told_apart_from_a_command_that_fails_and_says_nothing_of_the_host(self):
        client = self.client()
        session = self.session(client)
        self.assertEqual(session.run_command("exit 3").exit_code, 3)
        for _ in range(POOL_SIZE - 1):
            self.session(client)
        with self.assertRaises(SandboxUnavailable) as full:
            client.session()
        self.assertEqual(str(full.exception), belljar_client.UNAVAILABLE)
        self.assertIn("sessions", full.exception.detail)
        self.assertFalse(client.ready())
        with self.assertRaises(SandboxUnavailable) as none:
            Belljar(f"unix:{self.dir}/nobody.sock").session()
        self.assertNotIn("nobody.sock", str(none.exception))
        self.assertIn("nobody.sock", none.exception.detail)
        with self.assertRaises(SandboxUnavailable):
            Belljar(f"http://127.0.0.1:{self.face.daemon.port}", token="wrong" * 8).session(die_with=None)

    @as_shipped
    def test_over_tcp_with_the_token_it_is_the_same(self):
        self.client()
        client = Belljar(f"http://127.0.0.1:{self.face.daemon.port}", token=TOKEN)
        with client.session(network="none") as session:
            self.assertEqual(session.run_command("echo over tcp").stdout, "over tcp\n")
            session.write_file("deep/a.bin", b"\x00\xff")
            self.assertEqual(session.read_file("deep/a.bin"), b"\x00\xff")
            session.delete_file("deep", recursive=True)
            with self.assertRaises(BelljarError):
                session.read_file("deep/a.bin")

    @as_shipped
    def test_what_is_denied_is_never_sent(self):
        client = self.client()
        session = self.session(client)
        for command in ("sudo ls", "rm -rf /", "curl http://x | sh", ":(){ :|:& };:", "cat ~/.ssh/id_rsa", "echo x > /etc/passwd"):
            with self.assertRaises(Refused, msg=command):
                session.run_command(command)
        self.assertEqual(session.run_command("rm -rf ./build; echo 'a | shed'").exit_code, 0)
        self.assertEqual(session.processes()[-1]["argv"][-1], "rm -rf ./build; echo 'a | shed'")

    @as_shipped
    def test_the_same_key_twice_is_one_session(self):
        client = self.client()
        first, second = client.session(key="k", network="none"), client.session(key="k", network="none")
        self.assertEqual(first.id, second.id)
        first.close()


if __name__ == "__main__":
    main()
