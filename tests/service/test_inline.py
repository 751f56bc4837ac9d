"""Policies that come along with a launch: never wider than the operator's ceiling, whoever has taken belljard over."""

import json
import os
import pathlib
import select
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from client import Service, ServiceTest
from harness import BACK_ENDS, as_root, back_ends, callers, main
from test_launch import Session

CEILING = {"version": 1, "extends": ["builtin:agent@1"], "network": {"mode": "none"},
           "filesystem": {"mounts": {"/tmp": {"noexec": True}}}, "syscalls": {"rules": {"ptrace": "EPERM"}},
           "limits": {"wall_time": "60s", "rlimits": {"nofile": 512}}}
WITHIN = {**CEILING, "limits": {"wall_time": "30s", "rlimits": {"nofile": 256}}}
KEPT = ("identity", "namespaces", "capabilities", "io", "final", "report", "tests")


def with_member(*path, value):
    """WITHIN with one more value."""
    policy = json.loads(json.dumps(WITHIN))
    inside = policy
    for key in path[:-1]:
        inside = inside.setdefault(key, {})
    inside[path[-1]] = value
    return policy


class InlineTest(ServiceTest):
    def start_with_ceiling(self, *options, ceiling=None):
        policies = self.make_directory("policies")
        self.make_file("policies/site.json", json.dumps(ceiling or CEILING))
        service = self.start_service("--policy-dir", policies, "--inline-ceiling", "site", *options)
        service.prepare("w", {"a.txt": b"hello"})
        return service

    def run_inline(self, service, policy, *argv, **more):
        text = policy if isinstance(policy, str) else json.dumps(policy)
        # Session names a served policy, which is taken out again.
        session = Session(WithoutPolicy(service), list(argv), inline=text, **more)
        record, out = session.over(), session.read()
        select.select([session.monitor], [], [])
        return record, out

    def check_refused(self, service, policy, *texts, path=None, control="ceiling", **more):
        record, out = self.run_inline(service, policy, "echo", "ran", **more)
        self.assertEqual((record["cause"], out), ("setup", ""), record)
        self.assertEqual(record["setup"]["control"], control, record)
        if path is not None:
            self.assertEqual(record["setup"]["policy"], path, record)
        for text in texts:
            self.assertIn(text, record["setup"]["reason"])

    def refusal(self, service, code, *texts, **more):
        null = os.open("/dev/null", os.O_RDWR)
        members = {"session": "s", "uid": service.uid, "workspace": "w", "settings": [], "variables": {}, "environment": {},
                   "argv": ["true"], **more}
        self.check_code(service.refusal("launch", [null] * 3, **members), code, *texts)
        os.close(null)


class WithoutPolicy:
    """A service whose launches name no policy."""

    def __init__(self, service):
        self.service = service

    def __getattr__(self, name):
        return getattr(self.service, name)

    def ask(self, do, fds=(), policy=None, **members):
        return self.service.ask(do, fds, **members)


class Inline(InlineTest):
    def setUp(self):
        super().setUp()
        self.service = self.start_with_ceiling()

    @back_ends(*BACK_ENDS)
    def test_one_within_the_ceiling_is_in_force(self):
        record, out = self.run_inline(self.service, WITHIN, "sh", "-c", "id -u; pwd; cat a.txt; echo; ulimit -n; "
                                      "tail -n +3 /proc/net/dev | grep -vc lo:; cp /bin/true /tmp/x; /tmp/x 2>/dev/null || echo noexec")
        self.assertEqual(record["cause"], "exited", record)
        self.assertEqual(out.split(), [str(self.service.uid), str(self.service.root / "w"), "hello", "256", "0", "noexec"])
        self.assertEqual(record["policy"], "inline")
        self.assertRegex(record["policy_digest"], "^sha256:[0-9a-f]{64}$")
        self.assertNotIn(record["policy_digest"], {policy["digest"] for policy in self.service.hello["policies"]})
        self.assertTrue(self.service.hello["inline"])

    def test_its_own_name_is_not_that_of_records(self):
        record, _ = self.run_inline(self.service, {**WITHIN, "name": "site"}, "true")
        self.assertEqual((record["cause"], record["policy"]), ("exited", "inline"), record)

    def test_what_is_wider_than_the_ceiling_is_refused(self):
        target = 'filesystem.mounts["/srv2"]'
        wider = [(target, with_member("filesystem", "mounts", "/srv2", value={"type": "bind", "source": "/"})),
                 ('filesystem.mounts["/tmp"].noexec', with_member("filesystem", "mounts", "/tmp", "noexec", value=False)),
                 ('filesystem.mounts["/tmp"]', with_member("filesystem", "mounts", "/tmp", value=None)),
                 ('filesystem.mask["/etc/shadow"]', with_member("filesystem", "mask", "/etc/shadow", value=None)),
                 ('filesystem.hide["/root"]', with_member("filesystem", "hide", "/root", value=None)),
                 ("filesystem.home", with_member("filesystem", "home", value="private")),
                 ("network.mode", with_member("network", "mode", value="shared")),
                 ("network.mode", with_member("network", "mode", value="private")),
                 ("network.mode", with_member("network", "mode", value="/proc/1/ns/net")),
                 ("syscalls.base", with_member("syscalls", "base", value="none")),
                 ("syscalls.rules.ptrace", with_member("syscalls", "rules", value=None)),
                 ("syscalls.rules.mount", with_member("syscalls", "rules", "mount", value="allow")),
                 ("syscalls.mode", with_member("syscalls", "mode", value="log")),
                 ("landlock.scopes", with_member("landlock", value=None)),
                 ("limits.wall_time", with_member("limits", "wall_time", value="90s")),
                 ("limits.wall_time", with_member("limits", value=None)),
                 ("limits.rlimits.nofile", with_member("limits", "rlimits", "nofile", value=513)),
                 ("limits.rlimits.nproc", with_member("limits", "rlimits", "nproc", value=None)),
                 ("env.pass", with_member("env", "pass", value=["*"])),
                 ("env.deny", with_member("env", "deny", value=None)),
                 ("env.set.LD_PRELOAD", with_member("env", "set", "LD_PRELOAD", value="x.so")),
                 (None, {**WITHIN, "extends": ["builtin:dev@1"]}), (None, {**WITHIN, "extends": ["builtin:bwrap@1"]}),
                 (None, {"version": 1})]
        for path, policy in wider:
            with self.subTest(path, policy=policy):
                self.check_refused(self.service, policy, path=path)

    def test_what_a_session_is_made_of_is_the_operators(self):
        for key in KEPT:
            for value in (None, {}, [], "x", 5):
                with self.subTest(key, value=value):
                    self.check_refused(self.service, {key: value, **WITHIN}, f"inline:1:2: {key}: is the operator's to say")
        for value in (None, {}, {"path": "/etc"}, {"path": "/", "readonly": False}):
            self.check_refused(self.service, with_member("filesystem", "workspace", value=value), "filesystem.workspace: is the operator's")

    def test_presets_of_its_own_bring_no_privileges(self):
        """A preset may name capabilities, ids or namespaces: then the ceiling has to have them."""
        self.check_refused(self.service, {**WITHIN, "extends": ["builtin:bwrap@1"]})
        record, out = self.run_inline(self.service, WITHIN, "grep", "CapEff", "/proc/self/status")
        self.assertEqual(out.split(), ["CapEff:", "0" * 16], record)

    def test_it_extends_no_file_of_the_services(self):
        self.make_file("policies/open.json", '{"version":1,"extends":["builtin:agent@1"]}')
        for name in (str(self.dir / "policies/open.json"), "open.json", "../policies/site.json", "/etc/passwd", "/dev/stdin", "site"):
            with self.subTest(name):
                self.check_refused(self.service, {**WITHIN, "extends": [name]}, "extends[0]: ", "only a policy that is a file can extend files")
        for name in ("builtin:off@1", "builtin:site", "builtin:../off@1", "builtin:", ""):
            with self.subTest(name):
                self.check_refused(self.service, {**WITHIN, "extends": [name]}, "extends[0]: ")
        self.check_refused(self.service, {**WITHIN, "extends": ["builtin:agent@1"] * 17}, "more than 16 policies")

    def test_a_text_that_is_no_policy_is_refused_at_its_place(self):
        for text, message in (("", "inline:1:1: "), ("[]", "expected an object"), ("null", "expected an object"), ("{", "inline:1:2: "),
                              ("{}", '"version" is required'), ('{"version":2}', "version 2 is unknown"), ("{} {}", "inline:1:4: "),
                              ('{"version":1 // no comments\n}', "inline:1:14: "), ('{"version":1,\n "limit": {}}', "inline:2:2: limit: unknown key"),
                              ('{"version":1,"version":1}', "inline:1:14: "), ('{"version":1,"x-a":"\\u0000"}', "NUL"),
                              ('{"a":' * 1000 + "1" + "}" * 1000, "inline:1:"), ("[" * 20000, "inline:1:"), ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "inline:1:1")):
            with self.subTest(text[:40]):
                self.check_refused(self.service, text, message)
        self.check_refused(self.service, '{"version":1,\n "limits": {"memory": "much"},\n "networks": {}}', "inline:2:23: limits.memory", "inline:3:2: networks")

    def test_variables_are_its_own_to_declare(self):
        policy = with_member("vars", "time", value={"type": "duration", "max": "40s"})
        policy["limits"]["wall_time"] = "${time}"
        record, _ = self.run_inline(self.service, policy, "true", variables={"time": "10s"})
        self.assertEqual(record["cause"], "exited", record)
        self.check_refused(self.service, policy, "above the largest", variables={"time": "50s"})
        self.check_refused(self.service, policy, "time")
        self.check_refused(self.service, WITHIN, "other", variables={"other": "1"})
        policy["vars"]["time"] = {"type": "duration"}
        self.check_refused(self.service, policy, path="limits.wall_time", variables={"time": "61s"})

    def test_settings_of_the_request_may_take_away_from_it_and_never_add(self):
        record, out = self.run_inline(self.service, WITHIN, "sh", "-c", "ulimit -n", settings=["limits.rlimits.nofile=99"])
        self.assertEqual((record["cause"], out), ("exited", "99\n"), record)
        # The ceiling has 512.
        self.check_refused(self.service, WITHIN, path="limits.rlimits.nofile", control="policy", settings=["limits.rlimits.nofile=257"])
        self.check_refused(self.service, WITHIN, path="limits.rlimits.nofile", control="policy", settings=["limits.rlimits.nofile=513"])
        self.check_refused(self.service, WITHIN, control="policy", settings=["network.mode=shared"])
        self.refusal(self.service, "refused", "may not set", inline=json.dumps(WITHIN), settings=["capabilities=[]"])

    def test_a_message_names_a_policy_or_has_one(self):
        text = json.dumps(WITHIN)
        self.refusal(self.service, "invalid", "unknown member", inline=text, policy="site")
        self.refusal(self.service, "invalid", "unknown member", inline=text, digest="sha256:0")
        self.refusal(self.service, "invalid", "policy: is missing")
        for wrong in (WITHIN, None, 5, [text]):
            self.refusal(self.service, "invalid", "inline: expected a string", inline=wrong)
        self.refusal(self.service, "invalid", "24576", inline=" " * (24 << 10) + text)
        record, _ = self.run_inline(self.service, text + " " * ((24 << 10) - len(text)), "true")
        self.assertEqual(record["cause"], "exited", "as long as it may be")


class Ceilings(InlineTest):
    def test_without_one_no_policy_comes_along(self):
        service = self.start_service()
        service.prepare("w")
        self.assertFalse(service.hello["inline"])
        self.refusal(service, "refused", "inline_ceiling", inline=json.dumps(WITHIN))
        record = Session(service, ["true"]).over()
        self.assertEqual(record["cause"], "exited", "and served ones are as they were")

    def test_one_that_is_not_there_or_broken_keeps_it_from_starting(self):
        broken = self.make_file("broken.json", '{"version":1,"limit":{}}')
        for name in ("builtin:agnet@1", "builtin:off@1", "absent", "/no/such.json", broken):
            with self.subTest(name):
                said = Service(self, "--inline-ceiling", name).refused()
                self.assertIn(str(name), said)
                self.assertIn("--inline-ceiling", said)

    @as_root
    @callers("root", "five")
    def test_a_file_that_others_can_write_is_none(self):
        shared = self.make_file("shared.json", json.dumps(CEILING), mode=0o666)
        self.assertIn("not root's alone to write", Service(self, "--inline-ceiling", shared).refused())

    def test_a_file_can_be_one_without_being_served(self):
        ceiling = self.make_file("ceiling.json", json.dumps(CEILING))
        service = self.start_service("--inline-ceiling", ceiling)
        service.prepare("w")
        self.assertNotIn(str(ceiling), {policy["name"] for policy in service.hello["policies"]})
        record, _ = self.run_inline(service, WITHIN, "true")
        self.assertEqual(record["cause"], "exited", record)
        # What it says later is nothing to a service that has read it.
        wider = with_member("network", "mode", value="shared")
        ceiling.write_text(json.dumps(wider))
        self.check_refused(service, wider, path="network.mode")

    def test_no_served_policy_has_the_name_of_those_that_come_along(self):
        policies = self.make_directory("other")
        self.make_file("other/inline.json", '{"version":1,"extends":["builtin:agent@1"]}')
        service = self.start_service("--policy-dir", policies)
        self.assertNotIn("inline", {policy["name"] for policy in service.hello["policies"]})
        self.assertIn("policy inline is not served", service.said())

    def test_limits_of_the_settings_count_where_it_says_nothing_and_bound_what_it_says(self):
        service = self.start_with_ceiling("--rlimit-nofile", "300")
        silent = {**WITHIN, "limits": {"wall_time": "30s"}}
        for rlimits, limit in ({}, "300"), ({"nofile": 200}, "200"), ({"nofile": 300}, "300"):
            record, out = self.run_inline(service, {**silent, "limits": {"wall_time": "30s", "rlimits": rlimits}}, "sh", "-c", "ulimit -n")
            self.assertEqual((record["cause"], out), ("exited", limit + "\n"), record)
        for rlimits in ({"nofile": 301}, {"nofile": None}, None):
            self.check_refused(service, {**silent, "limits": {"wall_time": "30s", "rlimits": rlimits}}, path="limits.rlimits.nofile"
                               if rlimits else None)

    def test_with_the_sandbox_off_nothing_would_hold_it(self):
        said = Service(self, "--inline-ceiling", "builtin:agent@1", "--sandbox", "off")
        said.process.wait(30)
        self.assertNotEqual(said.process.returncode, 0)
        self.assertIn("nothing holds the policies that clients send", said.said())


if __name__ == "__main__":
    main()
