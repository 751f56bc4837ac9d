"""deploy-check and deploy, with a docker and an ssh that answer as told and write down what they are asked."""

import copy
import http.server
import json
import pathlib
import shutil
import subprocess
import tempfile
import threading
import unittest

CONTAINER = pathlib.Path(__file__).resolve().parents[2] / "container"
COMMIT = "a" * 40
SIMULATOR, WORKER, BACKEND = "besser-wme-agent-simulator", "besser-wme-smartgen", "besser-wme-backend"
IMAGES = {SIMULATOR: "registry/agents:latest", WORKER: "registry/worker:latest"}

FAKE_DOCKER = """#!/usr/bin/python3
import json, os, sys
place = os.environ["FAKE"]
words = sys.argv[1:]
with open(place + "/asked", "a") as log:
    log.write(" ".join(words) + "\\n")
told = json.load(open(place + "/told.json"))
if words[:1] == ["compose"] and "config" in words:
    if told["services"] is None:
        sys.exit("no configuration file provided: not found")
    print(json.dumps({"services": told["services"]}))
elif words[:2] == ["compose", "exec"]:
    service, command = words[3], " ".join(words[4:])
    for start, (status, said) in sorted(told["inside"].get(service, {}).items(), key=lambda item: -len(item[0])):
        if command.startswith(start):
            print(said)
            sys.exit(status)
    sys.exit(f"not told about {service}: {command}")
elif words[:1] == ["push"] and told.get("push_fails"):
    sys.exit("denied: access to the resource is denied")
"""
FAKE_SSH = """#!/bin/sh
# ssh -o BatchMode=yes HOST COMMAND
echo "ssh $3 $4" >> "$FAKE/asked"
[ "$3" != unreachable ] || { echo "ssh: connect to host unreachable port 22: No route to host" >&2; exit 255; }
exec sh -c "$4"
"""

NARROW = {"security_opt": ["no-new-privileges:true", "seccomp:./seccomp.json"], "cap_drop": ["ALL"],
          "cap_add": ["CHOWN", "DAC_OVERRIDE", "SETUID", "SETGID", "KILL"]}


def healthy():
    """What a host says that is as it should be."""
    config = {"llm": {"shell_tools_enabled": True, "toolchain_validation_enabled": True}}
    return {
        "services": {name: {"image": image, **copy.deepcopy(NARROW)} for name, image in IMAGES.items()},
        "inside": {
            SIMULATOR: {"printenv BELLJAR_BUILD_SHA": (0, COMMIT), "belljar --selftest": (0, "sandbox OK"),
                        "/usr/lib/belljar/health": (0, '200 {"status":"ok"}')},
            WORKER: {"printenv BELLJAR_BUILD_SHA": (0, COMMIT), "belljar --selftest --network": (0, "private network"),
                     "belljar --selftest": (0, "sandbox OK"), "/usr/lib/belljar/health": (0, "200 ready"),
                     "sh -c": (0, "v1.2.3"), "python3 -c import urllib": (0, json.dumps(config))},
            BACKEND: {"env": (0, "PATH=/usr/bin\nBESSER_LLM_ALLOW_CUSTOM_BASE_URL=false"),
                      "sh -c for name": (0, "end")},
        },
    }


class Fake(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="deploy-"))
        self.addCleanup(shutil.rmtree, self.place)
        (self.place / "bin").mkdir()
        for name, text in (("docker", FAKE_DOCKER), ("ssh", FAKE_SSH)):
            (self.place / "bin" / name).write_text(text)
            (self.place / "bin" / name).chmod(0o755)
        self.status = 200
        self.url = self.public_address()

    def public_address(self):
        test = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(test.status)
                self.end_headers()

            def log_message(self, *words):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}/"

    def execute(self, told, *command, cwd=None):
        (self.place / "told.json").write_text(json.dumps(told))
        (self.place / "asked").write_text("")
        environment = {"PATH": f"{self.place}/bin:/usr/bin:/bin", "FAKE": str(self.place), "HOME": str(self.place)}
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, cwd=cwd)

    def check(self, when, told, *options):
        services = [word for name, image in IMAGES.items() for word in ("--service", f"{name}={image}")]
        done = self.execute(told, CONTAINER / "deploy-check", when, *services, "--dir", self.place, "--json", "--commit",
                            COMMIT, *options)
        self.answer = json.loads(done.stdout)
        self.assertEqual(self.answer["ok"], done.returncode == 0, done.stdout)
        return done

    @property
    def failed(self):
        return [(check["check"], check["about"]) for check in self.answer["checks"] if not check["ok"]]

    def detail(self, name, about):
        return next(check["detail"] for check in self.answer["checks"]
                    if (check["check"], check["about"]) == (name, about))

    @property
    def asked(self):
        return (self.place / "asked").read_text()


class Before(Fake):
    def test_a_host_that_fits_passes(self):
        done = self.check("before", healthy())
        self.assertEqual((done.returncode, self.failed), (0, []))

    def test_it_only_reads(self):
        self.check("before", healthy())
        self.assertEqual(self.asked, "compose config --format json\n")

    def test_a_service_that_is_missing_is_refused(self):
        told = healthy()
        del told["services"][WORKER]
        self.check("before", told)
        self.assertEqual(self.failed, [("service", WORKER)])
        self.assertIn("no such service", self.detail("service", WORKER))

    def test_another_image_is_refused(self):
        told = healthy()
        told["services"][WORKER]["image"] = "registry/backend:latest"
        self.check("before", told)
        self.assertEqual(self.failed, [("service", WORKER)])
        self.assertIn("registry/backend:latest", self.detail("service", WORKER))

    def test_options_that_give_the_host_away_are_refused_and_can_be_left_out(self):
        for options in (["seccomp=unconfined"], ["apparmor:unconfined"], ["systempaths=unconfined"]):
            told = healthy()
            told["services"][SIMULATOR]["security_opt"] += options
            with self.subTest(options=options):
                self.check("before", told)
                self.assertEqual(self.failed, [("setting", SIMULATOR)])
        self.assertEqual(self.check("before", told, "--skip", "setting").returncode, 0)
        for change in ({"privileged": True}, {"cap_add": ["SYS_ADMIN"]}, {"cap_drop": []}, {"security_opt": []},
                       {"security_opt": ["seccomp:./seccomp.json"]}):
            told = healthy()
            told["services"][SIMULATOR].update(change)
            with self.subTest(change=change):
                self.check("before", told)
                self.assertEqual(self.failed, [("setting", SIMULATOR)])

    def test_what_cannot_be_asked_is_no_pass(self):
        done = self.check("before", {"services": None})
        self.assertEqual(done.returncode, 2)
        self.assertIn("no configuration file", self.answer["error"])
        done = self.check("before", healthy(), "--ssh", "unreachable")
        self.assertEqual(done.returncode, 2)
        self.assertIn("No route to host", self.answer["error"])

    def test_over_ssh_the_same_is_asked_there(self):
        self.check("before", healthy(), "--ssh", "host")
        self.assertIn(f"ssh host cd {self.place} && docker compose config --format json", self.asked)
        self.assertEqual(self.failed, [])


class After(Fake):
    def after(self, told, *options):
        return self.check("after", told, "--url", self.url, *options)

    def test_a_good_deployment_passes_with_a_line_for_each_check(self):
        done = self.after(healthy())
        self.assertEqual((done.returncode, self.failed), (0, []))
        self.assertGreaterEqual(len(self.answer["checks"]), 15)

    def test_each_thing_that_is_wrong_fails_its_own_check(self):
        def inside(service, command, status, said):
            return lambda told: told["inside"][service].update({command: (status, said)})
        off = json.dumps({"shell_tools_enabled": False, "toolchain_validation_enabled": True})
        wrong = {
            ("commit", SIMULATOR): inside(SIMULATOR, "printenv BELLJAR_BUILD_SHA", 0, "b" * 40),
            ("commit", WORKER): inside(WORKER, "printenv BELLJAR_BUILD_SHA", 1, ""),
            ("selftest", SIMULATOR): inside(SIMULATOR, "belljar --selftest", 1, "namespaces: refused"),
            ("selftest", WORKER): inside(WORKER, "belljar --selftest", 3, "cannot be found out"),
            ("health", SIMULATOR): inside(SIMULATOR, "/usr/lib/belljar/health", 1, '200 {"status":"degraded"}'),
            ("health", WORKER): inside(WORKER, "/usr/lib/belljar/health", 1, "503 not ready"),
            ("network", WORKER): inside(WORKER, "belljar --selftest --network", 1, "SHARED network"),
            ("tool", "tsc"): inside(WORKER, "sh -c tsc", 127, "sh: 1: tsc: not found"),
            ("features", WORKER): inside(WORKER, "python3 -c import urllib", 0, off),
            ("variables", BACKEND): inside(BACKEND, "env", 0, "BESSER_LLM_SHELL_SANDBOX=OFF"),
            ("compilers", BACKEND): inside(BACKEND, "sh -c for name", 0, "/usr/bin/gcc\nend"),
        }
        for expected, change in wrong.items():
            with self.subTest(check=expected):
                told = healthy()
                change(told)
                self.assertEqual(self.after(told).returncode, 1)
                self.assertEqual(self.failed, [expected])

    def test_each_variable_that_the_backend_must_not_have(self):
        for line in ("BESSER_LLM_ENABLE_SHELL_TOOLS=false", "BESSER_LLM_ENABLE_TOOLCHAIN_VALIDATION=",
                     "BESSER_LLM_RUN_WORKSPACE_ROOT=/workspace", "BESSER_LLM_RUN_STORE_PATH=/workspace/x",
                     "BESSER_LLM_ALLOW_CUSTOM_BASE_URL=true", "BESSER_LLM_SHELL_SANDBOX=off"):
            told = healthy()
            told["inside"][BACKEND]["env"] = (0, line)
            with self.subTest(line=line):
                self.after(told)
                self.assertEqual(self.failed, [("variables", BACKEND)])
                self.assertIn(line.split("=")[0], self.detail("variables", BACKEND))

    def test_what_cannot_be_asked_in_a_container_fails(self):
        told = healthy()
        told["inside"] = {}
        self.after(told)
        self.assertEqual(len(self.failed), len(self.answer["checks"]) - 1, self.failed)

    def test_the_public_address_must_answer_200(self):
        for status in (404, 502):
            self.status = status
            with self.subTest(status=status):
                self.after(healthy())
                self.assertEqual(self.failed, [("answer", self.url)])
        self.check("after", healthy())
        self.assertEqual(self.failed, [("answer", "the public address")])
        self.check("after", healthy(), "--url", "http://127.0.0.1:1/")
        self.assertEqual(self.failed, [("answer", "http://127.0.0.1:1/")])

    def test_what_is_left_out_is_said(self):
        told = healthy()
        told["inside"][WORKER]["belljar --selftest --network"] = (2, "unknown option --network")
        self.after(told, "--skip", "network")
        self.assertEqual(self.failed, [])
        self.assertIn("left out", self.detail("network", WORKER))


class Deploy(Fake):
    def setUp(self):
        super().setUp()
        self.tree = self.place / "tree"
        (self.tree / "container").mkdir(parents=True)
        for name in ("deploy", "deploy-check", "Dockerfile"):
            shutil.copy(CONTAINER / name, self.tree / "container" / name)
        for words in (["init", "-q"], ["add", "-A"],
                      ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "all"]):
            subprocess.run(["git", *words], cwd=self.tree, check=True)
        self.commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=self.tree, check=True, capture_output=True,
                                     text=True).stdout.strip()

    def deploy(self, told, *options):
        for service in told.get("inside", {}).values():
            for command, (status, said) in service.items():
                if said == COMMIT:
                    service[command] = (status, self.commit)
        what = [f"{SIMULATOR}=agents={IMAGES[SIMULATOR]}", f"{WORKER}=worker={IMAGES[WORKER]}"]
        return self.execute(told, self.tree / "container" / "deploy", "--ssh", "host", "--dir", self.place, "--url",
                            self.url, *what, *options)

    def test_it_checks_builds_pushes_recreates_and_checks(self):
        done = self.deploy(healthy())
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        steps = [line for line in self.asked.splitlines() if not line.startswith(("ssh", "compose exec"))]
        self.assertEqual([step.split(" -f")[0] for step in steps], [
            "compose config --format json", "build", "build", f"push {IMAGES[SIMULATOR]}", f"push {IMAGES[WORKER]}",
            f"compose pull {SIMULATOR} {WORKER}", f"compose up -d --no-deps --wait {SIMULATOR} {WORKER}"])
        self.assertIn(f"--build-arg BELLJAR_BUILD_SHA={self.commit}", steps[1])

    def test_when_the_host_does_not_fit_nothing_is_touched(self):
        for change in ({"services": {}}, {"services": None}):
            with self.subTest(change=change):
                done = self.deploy({**healthy(), **change})
                self.assertNotEqual(done.returncode, 0)
                for word in ("build", "push", "pull", "up"):
                    self.assertNotIn(f"\n{word} ", self.asked)
                    self.assertNotIn(f"compose {word}", self.asked)

    def test_a_push_that_fails_recreates_nothing(self):
        done = self.deploy({**healthy(), "push_fails": True})
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("compose up", self.asked)

    def test_a_deployment_that_does_not_work_is_an_error(self):
        told = healthy()
        told["inside"][SIMULATOR]["belljar --selftest"] = (1, "namespaces: refused")
        done = self.deploy(told)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(f"FAILED  selftest {SIMULATOR}: namespaces: refused", done.stdout)

    def test_what_no_commit_has_is_not_deployed(self):
        (self.tree / "new").write_text("")
        done = self.deploy(healthy())
        self.assertEqual(done.returncode, 2)
        self.assertIn("commit first", done.stderr)
        self.assertEqual(self.asked, "")


if __name__ == "__main__":
    unittest.main()
