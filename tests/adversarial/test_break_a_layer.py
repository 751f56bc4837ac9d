"""Each control is left out of belljar once, and the case that is to guard it finds an open door.

belljar_without (tests/tools/without.cpp) is belljar with the steps of one control left out. With nothing left out
every case here holds; that is the negative control. What is not in force and read back is refused besides.
"""

import importlib
import pathlib
import re
import shutil
import subprocess

from adversarial.case import EVERYTHING, NO_FILTER, main, merge, opened
from harness import BACK_ENDS, BELLJAR_SOURCE, CALLERS, ROOT, STAGE, SandboxTest, back_ends, build_file, callers, once

WITHOUT = STAGE / "belljar_without"
# control (":" and the beginning of a step): the case, and what a policy needs so that nothing else refuses too.
LAYERS = {
    "cgroup": ("R03", {}),
    "output": ("R08", {}),
    "disk": ("R05", {}),
    "namespaces": ("X01", {}),
    "identity": ("C02", {}),
    "filesystem": ("L10", {}),
    "proc_and_dev": ("P01", {}),
    "network": ("N01", {}),
    "landlock": ("N02", {}),
    "capabilities": ("C01", {}),
    "no_new_privs": ("C03", NO_FILTER),
    "seccomp": ("S04", {}),
    "rlimits": ("R01", {}),
    "environment": ("C13", {}),
    "stdio": ("L02", {}),
    "time_limits": ("R07", {}),
    "time_limits:end it after": ("R07", {}),
    "command": ("L03", {}),
    "filesystem:make the root read-only": ("R04", {}),
    "filesystem:mask": ("S05", {}),
    "namespaces:join a fresh session keyring": ("S05", NO_FILTER),
    "namespaces:allow no user namespaces": ("C04", NO_FILTER),
    "namespaces:tie init": ("P01", {}),
    "identity:drop all": ("C02", {}),
    "proc_and_dev:make a minimal": ("C09", {}),
}
# Elsewhere something else holds: a plain user's groups are no step of ours, root's keys are not the session's,
# and what changes its ids is not dumpable.
ONLY = {"identity:drop all": ("root",), "filesystem:mask": ("user",), "namespaces:tie init": ("user",)}
# What is read back is refused even without a probe; and what the refusal names.
READ_BACK = {"identity:drop all": "Groups", "capabilities": "Cap", "no_new_privs": "NoNewPrivs", "seccomp": "Seccomp",
             "namespaces": "namespace", "identity:set umask": "Umask"}
# What a self-test needs a policy to say, so that each layer has something to do.
SELFTEST = {
    "identity": {"umask": "027"},
    "filesystem": {"mask": {"/proc/cmdline": "for the test", "/usr/share": "for the test"}},
    "landlock": {"filesystem": True, "scopes": ["abstract_unix_socket", "signal"]},
    "limits": {"wall_time": "1m", "output": "1MiB", "rlimits": {"nofile": 256, "core": "0B"}},
}
SELFTEST_CHANGES = {"cgroup": {"limits": {"memory": "512MiB", "processes": 100}},
                    "disk": {"limits": {"disk": "1GiB"}},
                    "time_limits:end it after": {"limits": {"cpu_time": "1h", "enforce": "prefer"}}}
# And what it needs a caller to be: who may make cgroups, and who has groups to drop.
SELFTEST_CALLERS = {"cgroup": ("root",), "identity:drop all": ("root",)}
# Where what starts belljar has not set no_new_privs before.
NO_OTHER_SETS_IT = {("root", "modern"), ("root", "legacy"), ("user", "modern")}


def case_of(name):
    path, = pathlib.Path(__file__).parent.glob(f"test_{name}_*.py")
    return getattr(importlib.import_module(f"adversarial.{path.stem}"), name)


def test_name(layer):
    return f"test_without_{re.sub('[^a-z]+', '_', layer)}_a_case_finds_an_open_door"


def selftest_name(layer):
    return f"test_without_{re.sub('[^a-z]+', '_', layer)}_the_self_test_names_it"


class BreakALayer(SandboxTest):

    def setUp(self):
        super().setUp()
        if not WITHOUT.exists():
            shutil.copy(build_file("tests/tools/belljar_without"), WITHOUT)

    def doors(self, case_name, layer, changes):
        """What the case finds open where the layer is left out."""
        case = case_of(case_name)(f"test_no_door_is_open [{self.caller}, {self.back_end}]")
        case.setUp()
        try:
            case.without = [WITHOUT, layer]
            found = set()
            for variant in case.variants():
                found |= opened(case.attack(merge(variant, changes)))
            return found
        finally:
            self.assertTrue(case.doCleanups(), "the case left something")

    def check(self, layer):
        case, changes = LAYERS[layer]
        self.assertEqual(self.doors(case, "nothing", changes), set(), "with nothing left out")
        self.assertNotEqual(self.doors(case, layer, changes), set(), f"without {layer}, {case} finds nothing")

    def selftest(self, layer, changes):
        root = self.make_directory("sessions", owner=self.uid if self.caller == "user" else 0, mode=0o711)
        groups = (4, 27) if self.privileged else ()
        run = self.belljar("selftest", "--policy", self.policy(merge(SELFTEST, changes)), "--sessions-root", root,
                           wrap=[WITHOUT, layer], groups=groups)
        self.assertEqual(list(root.iterdir()), [], "the ground is left")
        return run

    def check_selftest(self, layer):
        changes = merge(LAYERS[layer][1], SELFTEST_CHANGES.get(layer, {}))
        whole = self.selftest("nothing", changes)
        self.assertEqual((whole.code, whole.out), (0, "sandbox OK\n"), f"with nothing left out: {whole}")
        run = self.selftest(layer, changes)
        control = layer.partition(":")[0]
        self.assertEqual(run.code, 1, f"without {layer}: {run}")
        self.assertRegex(run.out, f"(?m)^{control}: ", f"without {layer}: {run}")

    def test_what_is_read_back_is_refused_when_it_is_left_out(self):
        for layer, word in READ_BACK.items():
            with self.subTest(layer=layer):
                if layer == "no_new_privs" and (self.caller, self.back_end) not in NO_OTHER_SETS_IT:
                    continue
                changes = merge(NO_FILTER if layer == "no_new_privs" else {}, {"identity": {"umask": "027"}})
                groups = (4, 27) if self.privileged else ()
                run = self.sandbox("true", wrap=[WITHOUT, f"{layer},read-back"], policy=changes, groups=groups)
                if layer == "identity:drop all" and not self.privileged:
                    self.check_exited(run)  # It had none to drop.
                    continue
                self.check_refused(run, word, "EPROTO")

    def test_with_nothing_left_out_nothing_is_refused(self):
        self.check_exited(self.sandbox("true", wrap=[WITHOUT, "nothing,read-back"]))

    @callers("root")
    @back_ends("modern")
    def test_what_no_longer_ends_a_command_is_named_by_the_policys_test(self):
        """belljar test goes beyond each limit, and says which one nobody felt."""
        limits = {"limits": {"cpu_time": "1h", "output": "1GiB", "disk": "1GiB", "enforce": "prefer"}}
        for layer, limit in (("nothing", None), ("time_limits:end it after", "limits.cpu_time"),
                             ("output", "limits.output"), ("disk", "limits.disk")):
            with self.subTest(layer=layer):
                run = self.belljar("test", "--policy", self.policy(limits), "--json", wrap=[WITHOUT, layer], timeout=300)
                failed = {item["test"] for item in run.json()["results"] if not item["held"]}
                self.assertEqual({name for name in failed if name.startswith("limits.")}, {limit} - {None}, str(run))

    def test_without_the_pivot_the_hosts_tree_is_seen(self):
        hosts = self.make_file("of-the-host", "x").parent
        for layer, seen in (("nothing", False), ("filesystem:make it the root", True)):
            run = self.sandbox("/usr/bin/ls", hosts, wrap=[WITHOUT, layer])
            self.assertEqual("of-the-host" in run.out, seen, str(run))

    for _layer in LAYERS:
        def _check(self, layer=_layer):
            self.check(layer)
        _check.callers = ONLY.get(_layer, CALLERS if EVERYTHING else ("root", "user"))
        _check.back_ends = BACK_ENDS if EVERYTHING else ("modern",)
        locals()[test_name(_layer)] = _check

        def _check_selftest(self, layer=_layer):
            self.check_selftest(layer)
        _check_selftest.callers = SELFTEST_CALLERS.get(_layer, CALLERS if EVERYTHING else ("root", "user"))
        _check_selftest.back_ends = BACK_ENDS if EVERYTHING else ("modern",)
        locals()[selftest_name(_layer)] = _check_selftest

    @once
    def test_every_control_of_belljar_is_left_out_once(self):
        words = r"^const Control k\w+ = \{\s*\"(\w+)\""
        files = (ROOT / "launcher" / "controls").glob("*.cpp")
        names = {name for path in files for name in re.findall(words, path.read_text(), re.MULTILINE)}
        self.assertGreater(len(names), 15)
        self.assertEqual(names - set(LAYERS), set())

    @once
    def test_belljar_itself_has_no_such_switch(self):
        symbols = subprocess.run(["nm", BELLJAR_SOURCE], capture_output=True, text=True, check=True).stdout
        self.assertIn("belljar8launcher6launch", symbols)
        self.assertNotIn("__wrap_", symbols)
        self.assertNotIn(b"belljar_without", BELLJAR_SOURCE.read_bytes())
        run = self.belljar("seccomp", "belljar", "run", "--", "true")
        self.assertEqual((run.code, run.out), (125, ""), str(run))


if __name__ == "__main__":
    main()
