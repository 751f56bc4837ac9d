"""Hosts that lack something, one by one: the self-test and the doctor name the control and the remedy. Where that can
be done here, the script that `doctor --fix-script` prints is run on the broken host, and the refusal disappears;
elsewhere the fault is taken away. The same host unbroken comes first."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from cgroup_places import Places, remove_cgroup, with_v1
from harness import AS_ROOT, ROOT, SandboxTest, as_root, back_ends, callers, main, not_sanitized, once

STRICT, AGENT = "builtin:strict@1", "builtin:agent@1"


@dataclasses.dataclass
class Broken:
    """`how` goes in front of belljar, as root or with the caller's rights; `mended` likewise, with the remedy applied
    after the fault. `scripted`: the printed script is the remedy, and runs where `how` has {fix}."""
    control: str
    finding: str
    how: list
    remedy: str
    mended: list | None = None
    scripted: bool = False
    as_caller: bool = True
    policy: object = AGENT
    options: tuple = ()


def refuse(calls):
    return ["{tools}/refuse", calls]


def counts(*values):
    """As the caller, in a user namespace of its own, where namespace counts can be set for all below."""
    script = "; ".join(f"echo {value} >/proc/sys/user/{name}" for name, value in values)
    return ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-ec", script + '\n{fix}exec setpriv '
            '--ambient-caps=-all --inh-caps=-all "$@"', "sh"]


def count_at_zero(kind):
    name = f"max_{kind}_namespaces"
    return Broken("namespaces", "namespaces-off", counts((name, 0)), f"sysctl -w user.{name}=15000",
                  scripted=True, policy=STRICT if kind == "net" else AGENT)


def mounts(script):
    """A shell script as root, in a mount namespace that only this run has."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script + '\n{fix}exec "$@"', "sh"]


DEV = ("mount -t tmpfs -o mode=755 dev {dir}/dev; for name in null full random urandom tty; do "
       "cp -a /dev/$name {dir}/dev/; done; mkdir {dir}/dev/pts {dir}/dev/shm; mount --move {dir}/dev /dev")
SECCOMP = '"unshare","mount","umount2","pivot_root"'

# Calls that a filter refuses; with the remedy, it refuses no call that a launch needs.
BY_FILTER = {
    "Docker's default profile": Broken("namespaces", "container-seccomp",
                                       refuse("clone3=ENOSYS,unshare=EPERM,mount=EPERM,umount2=EPERM,pivot_root=EPERM"),
                                       SECCOMP, refuse("clone3=ENOSYS,open_tree=EPERM,mount_setattr=EPERM")),
    "no unshare": Broken("namespaces", "container-seccomp", refuse("clone3=ENOSYS,unshare=ENOSYS"), SECCOMP,
                         refuse("clone3=ENOSYS")),
    "no mount": Broken("filesystem", "container-seccomp", refuse("mount=EPERM"), SECCOMP, refuse("sethostname=EPERM")),
    "no pivot_root": Broken("filesystem", "container-seccomp", refuse("pivot_root=EPERM"), SECCOMP,
                            refuse("sethostname=EPERM")),
    "no umount2": Broken("filesystem", "launch", refuse("umount2=EPERM"), "allow mount, umount2 and",
                         refuse("sethostname=EPERM")),
    "a security module against mounts": Broken("filesystem", "apparmor-mount", refuse("mount=EACCES"),
                                               "mount, umount and pivot_root", refuse("sethostname=EPERM")),
    "an initramfs": Broken("filesystem", "rootfs", refuse("pivot_root=EINVAL"), "switch_root",
                           refuse("sethostname=EPERM")),
    "no user namespaces in the kernel": Broken("namespaces", "kernel-without-userns",
                                               refuse("clone3=ENOSYS,unshare=EINVAL"), "CONFIG_USER_NS",
                                               refuse("clone3=ENOSYS")),
    "no filters": Broken("seccomp", "no-seccomp", refuse("filter=EINVAL"), "CONFIG_SECCOMP_FILTER",
                         refuse("sethostname=EPERM")),
    "no sethostname": Broken("identity", "sethostname", refuse("sethostname=EPERM"), "allow sethostname",
                             refuse("clone3=ENOSYS"), policy={"identity": {"hostname": "inside"}}),
    "no Landlock in the kernel": Broken("landlock", "no-landlock", refuse("landlock_create_ruleset=ENOSYS"),
                                        "CONFIG_SECURITY_LANDLOCK", refuse("sethostname=EPERM"),
                                        policy={"landlock": {"filesystem": True}}),
    "Landlock not among the modules": Broken("landlock", "no-landlock", refuse("landlock_create_ruleset=EOPNOTSUPP"),
                                             "lsm=", refuse("sethostname=EPERM"),
                                             policy={"landlock": {"filesystem": True}}),
}

BY_SYSCTL = {f"user.max_{kind}_namespaces is 0": count_at_zero(kind)
             for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")}

MASK = "mount --bind /dev/null /proc/keys"
BY_MOUNTS = {
    "a masked /proc": Broken("proc_and_dev", "proc-masked", mounts(MASK), "hidden helper",
                             mounts(MASK + "; umount /proc/keys"), as_caller=False, policy=STRICT),
    "a read-only directory in /proc": Broken("proc_and_dev", "proc-masked",
                                             mounts("mount --bind -o ro /proc/bus /proc/bus"), "hidden helper",
                                             mounts("mount --bind -o ro /proc/bus /proc/bus; umount /proc/bus"),
                                             as_caller=False, policy=STRICT),
    "a read-only /proc": Broken("identity", "proc-read-only", mounts("mount -o remount,bind,ro /proc"),
                                "mount -o remount,rw /proc", scripted=True, as_caller=False),
    "no /proc": Broken("namespaces", "proc-missing", mounts("umount -l /proc"), "mount -t proc proc /proc",
                       scripted=True, as_caller=False),
    "a /dev without zero": Broken("proc_and_dev", "launch", mounts(DEV), "/dev lacks one of null, zero",
                                  mounts(DEV + "; mknod -m 666 /dev/zero c 1 5"), as_caller=False),
}

ROOTS = {
    "a workspace root that the session cannot reach": Broken(
        "filesystem", "workspace-unreachable", mounts("chmod 0700 {dir}/way"), "chmod o+x {dir}/way",
        scripted=True, as_caller=False),
    "a workspace root on a read-only file system": Broken(
        "filesystem", "workspace-read-only", mounts("mount --bind {dir}/way {dir}/way; mount -o remount,bind,ro {dir}/way"),
        "mount something writable there", scripted=True, as_caller=False),
    "a workspace root that others can change": Broken(
        "filesystem", "launch", mounts("chmod 0777 {dir}/way/sessions"), "chmod 0711",
        mounts("chmod 0777 {dir}/way/sessions; chmod 0711 {dir}/way/sessions"), as_caller=False),
}

CALLERS = {
    "a hard limit below the policy's": Broken("rlimits", "hard-limit", ["prlimit", "--nofile=100:100"],
                                              "--ulimit nofile=1024", ["prlimit", "--nofile=1024:1024"]),
    "a root without SETUID and SETGID": Broken(
        "identity", "", ["setpriv", "--inh-caps=-all", "--bounding-set=-setuid,-setgid"], "CAP_SETUID and CAP_SETGID",
        ["setpriv", "--inh-caps=-all", "--bounding-set=-sys_admin"], as_caller=False),
    "a root without CHOWN": Broken("filesystem", "launch", ["setpriv", "--inh-caps=-all", "--bounding-set=-chown"],
                                   "CAP_CHOWN", ["setpriv", "--inh-caps=-all", "--bounding-set=-sys_admin"], as_caller=False),
}


class HostTest(SandboxTest):

    def setUp(self):
        super().setUp()
        way = self.make_directory("way")
        self.root = self.make_directory("way/sessions", owner=self.uid if self.caller == "user" else 0, mode=0o711)
        self.make_directory("dev")
        way.chmod(0o755)

    def filled(self, words, fix=""):
        values = {"{tools}": str(self.tool("")), "{dir}": str(self.dir), "{fix}": fix}
        for name, value in values.items():
            words = [word.replace(name, value) for word in words]
        return words

    def words(self, case):
        policy = case.policy if isinstance(case.policy, str) else self.policy(case.policy)
        return ["--policy", policy, "--sessions-root", self.root, *case.options]

    def run_in(self, words, case, verb, *more, fix="", **options):
        where = "wrap" if case.as_caller else "before"
        uid = ["--uid", self.uid] if verb == "selftest" and self.privileged else []
        if verb == "doctor" and self.privileged:
            uid = ["--uid-base", self.uid - 1, "--max-sessions", 1]
        return self.belljar(verb, *self.words(case), *uid, *more, **{where: self.filled(words, fix)}, **options)

    def script_of(self, case, **options):
        """To run what the doctor of the broken host prints. What it installs is here already."""
        script = self.make_file(f"fix-{self.files_made}.sh", self.run_in(case.how, case, "doctor", "--fix-script",
                                                                         **options).out)
        stubs = self.make_directory("stubs")
        self.make_file("stubs/apt-get", "#!/bin/sh\n", mode=0o755)
        return f"PATH={stubs}:$PATH sh {script}\n"


class BrokenHosts(HostTest):

    def check(self, case):
        remedy, = self.filled([case.remedy])
        run = self.run_in([], case, "selftest")
        self.assertEqual((run.code, run.out), (0, "sandbox OK\n"), f"before: {run}")
        run = self.run_in(case.how, case, "selftest")
        self.assertEqual(run.code, 1, str(run))
        lines = [line for line in run.out.splitlines() if line.startswith(case.control + ": ")]
        self.assertEqual(len(lines), 1, f"one line for {case.control}: {run}")
        self.assertIn(remedy, lines[0].partition("; remedy: ")[2], str(run))
        if case.finding:
            self.check_doctor(case, remedy)
        if case.mended is not None:
            run = self.run_in(case.mended, case, "selftest")
            self.assertEqual((run.code, run.out), (0, "sandbox OK\n"), f"mended: {run}")
        if case.scripted:
            self.check_script(case)

    def check_script(self, case):
        """Settings that last are written too: in a directory that only this run has."""
        before = {"before": self.filled(mounts("mount -t tmpfs -o mode=1777 none /etc/sysctl.d"))} \
            if case.as_caller and AS_ROOT else {}
        if case.as_caller and not AS_ROOT:
            return
        fix = self.script_of(case)
        run = self.run_in(case.how, case, "selftest", fix=fix, **before)
        self.assertEqual((run.code, run.out[-11:]), (0, "sandbox OK\n"), f"mended by {fix}: {run}")

    def check_doctor(self, case, remedy):
        run = self.run_in(case.how, case, "doctor", "--json")
        self.assertEqual(run.code, 1, str(run))
        missing = [item for item in run.json()["findings"] if item["weight"] == "missing"]
        found = [item for item in missing if item["id"] == case.finding]
        self.assertEqual([item["control"] for item in found[:1]], [case.control], str(run))
        self.assertIn(remedy, found[0]["remedy"])
        script = self.run_in(case.how, case, "doctor", "--fix-script").out
        self.assertIn(f"\n# {case.finding}: ", script)

    def check_each(self, cases):
        for name, case in cases.items():
            with self.subTest(host=name):
                self.check(case)

    @callers("root", "user")
    @back_ends("modern")
    @not_sanitized
    def test_calls_that_a_filter_refuses(self):
        self.check_each(BY_FILTER)

    @callers("user")
    @not_sanitized
    def test_namespaces_that_the_administrator_does_not_allow(self):
        self.check_each(BY_SYSCTL)

    @callers("root", "user")
    @as_root
    @not_sanitized
    def test_proc_and_dev_that_are_not_whole(self):
        self.check_each(BY_MOUNTS)

    @callers("root")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_places_for_workspaces_that_are_none(self):
        self.check_each(ROOTS)

    @callers("five")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_a_limit_that_cannot_be_raised(self):
        self.check(CALLERS["a hard limit below the policy's"])

    @callers("root")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_capabilities_that_are_not_there(self):
        for name in ("a root without SETUID and SETGID", "a root without CHOWN"):
            with self.subTest(host=name):
                self.check(CALLERS[name])

    @callers("user")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_a_plain_user_cannot_be_somebody_else(self):
        run = self.belljar("selftest", "--sessions-root", self.root, "--uid", self.uid + 1)
        self.assertEqual(run.code, 1, str(run))
        self.assertTrue(run.out.startswith("identity: "), run.out)
        self.assertIn("remedy: run belljar as root", run.out)

    @callers("root")
    @as_root
    @not_sanitized
    def test_a_chroot_is_told_from_a_filter(self):
        case = Broken("namespaces", "chroot", mounts("mkdir -p {dir}/new; mount --rbind / {dir}/new; "
                                                     "set -- chroot {dir}/new \"$@\""), "pivot_root",
                      mounts("mkdir -p {dir}/new; mount --rbind / {dir}/new; cd {dir}/new; pivot_root . .; "
                             "umount -l ."), as_caller=False)
        if self.back_end == "legacy":
            # There the filter could be the reason, and is named.
            case.finding, case.remedy = "container-seccomp", SECCOMP
        self.check(case)

    @callers("root")
    @as_root
    @not_sanitized
    def test_what_a_policy_only_prefers_is_no_failure_and_is_told(self):
        case = Broken("", "", mounts(MASK), "", as_caller=False)
        run = self.run_in(case.how, case, "selftest")
        self.assertEqual((run.code, run.out), (0, "sandbox OK\n"), str(run))
        self.assertIn("degraded, as the policy allows: proc_and_dev", run.err)
        run = self.run_in(case.how, case, "doctor")
        self.assertEqual(run.code, 0, str(run))
        self.assertIn("weaker: proc-masked", run.out)

    @callers("root")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_a_root_without_execution_is_a_note(self):
        script = "mount -t tmpfs -o noexec,mode=711 sessions {dir}/way/sessions"
        case = Broken("", "", mounts(script), "", as_caller=False)
        self.assertEqual(self.run_in(case.how, case, "selftest").out, "sandbox OK\n")
        run = self.run_in(case.how, case, "doctor")
        self.assertIn("note: workspace-noexec", run.out)
        self.assertNotIn("workspace-noexec", self.run_in([], case, "doctor").out)
        self.assertNotIn("workspace-noexec", self.run_in(case.how, case, "doctor", fix=self.script_of(case)).out)

    @callers("root")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_a_root_with_nosuid_is_a_note(self):
        case = Broken("", "", mounts("mount -t tmpfs -o nosuid,mode=711 sessions {dir}/way/sessions"), "", as_caller=False)
        run = self.run_in(case.how, case, "doctor")
        self.assertEqual(run.code, 0, str(run))
        self.assertIn("note: workspace-nosuid", run.out)
        plain = mounts("mount -t tmpfs -o mode=711 sessions {dir}/way/sessions")
        self.assertNotIn("workspace-nosuid", self.run_in(plain, case, "doctor").out)

    def preferred(self, case):
        """{id: finding} of what is weaker; the self-test is content all the same."""
        self.assertEqual(self.run_in(case.how, case, "selftest").out, "sandbox OK\n")
        text = self.run_in(case.how, case, "doctor")
        self.assertEqual(text.code, 0, str(text))
        weaker = {item["id"]: item for item in self.run_in(case.how, case, "doctor", "--json").json()["findings"]
                  if item["weight"] == "weaker"}
        last = text.out.splitlines()[-1]
        self.assertEqual(last.endswith(" needs, and not all that it prefers"), bool(weaker), last)
        return weaker

    @callers("root", "user")
    @not_sanitized
    def test_an_older_landlock_is_weaker_and_each_part_of_it_is_told(self):
        case = Broken("", "", [], "")
        self.assertEqual(self.preferred(case), {})
        case.how = ["{tools}/landlock_abi", "3"]
        found = self.preferred(case)
        self.assertEqual(set(found), {"old-landlock"})
        self.assertEqual(found["old-landlock"]["control"], "landlock")
        self.assertIn("abstract_unix_socket", found["old-landlock"]["evidence"])
        self.assertIn("Linux 6.12", found["old-landlock"]["remedy"])
        case.how = ["{tools}/landlock_abi", "ENOSYS"]
        self.assertEqual(set(self.preferred(case)), {"no-landlock"})
        case.how, case.policy = ["{tools}/landlock_abi", "3"], {"landlock": {"filesystem": True}}
        run = self.run_in(case.how, case, "doctor")
        self.assertEqual(run.code, 1, str(run))
        self.assertIn("missing: old-landlock (landlock)", run.out)

    @callers("root")
    @not_sanitized
    def test_a_policy_that_refuses_no_call_is_weaker_by_its_own_word(self):
        case = Broken("", "", [], "", policy={"syscalls": {"base": "agent@1", "mode": "log"}})
        found = self.preferred(case)
        self.assertEqual((set(found), found["degraded"]["control"]), ({"degraded"}, "seccomp"))
        self.assertIn("syscalls.mode", found["degraded"]["evidence"])
        self.assertIn("take", found["degraded"]["remedy"])

    @callers("user")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_namespaces_that_others_use_up_are_told_from_those_that_are_off(self):
        hold = ('echo 1 >/proc/sys/user/max_net_namespaces; unshare --net sleep 100 & holder=$!\n'
                'until [ "$(readlink /proc/$holder/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done\n'
                'code=0; {fix}setpriv --ambient-caps=-all --inh-caps=-all "$@" || code=$?\n'
                'kill $holder; wait $holder || true; exit $code')
        how = counts()[:-2] + [hold, "sh"]
        self.check(Broken("namespaces", "namespaces-used-up", how, "sysctl -w user.max_net_namespaces=15000",
                          scripted=True, policy=STRICT))

    @callers("root")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_the_hosts_root_is_mapped_by_those_with_setfcap_alone(self):
        without, whole = (["setpriv", "--inh-caps=-all", f"--bounding-set=-{name}"] for name in ("setfcap", "sys_admin"))
        policy = self.make_file("p.json", json.dumps({"version": 1, "extends": [STRICT], "identity": {"uid": 0, "gid": 0},
                                                      "limits": {"rlimits": {"nproc": None}}}))
        for verb in ("selftest", "doctor"):
            words = [verb, "--policy", policy, "--sessions-root", self.root]
            self.assertEqual(self.belljar(*words, before=whole).code, 0)
            run = self.belljar(*words, before=without)
            self.assertEqual(run.code, 1, str(run))
            self.assertIn("run sandboxes as another uid" if verb == "selftest" else "missing: map-root (identity)", run.out)

    @callers("root", "user")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_a_range_of_ids_that_nobody_has_is_found_by_the_script(self):
        passwd = pathlib.Path("/etc/passwd").read_text() + f"somebody:x:{self.uid}:{self.gid}::/nonexistent:/bin/sh\n"
        for name, text in (("passwd", passwd), ("subuid", "other:100000:65536\n"), ("subgid", "")):
            self.make_file(f"etc-{name}", text)
        bind = "".join(f"mount --bind {{dir}}/etc-{name} /etc/{name}\n" for name in ("passwd", "subuid", "subgid"))
        case = Broken("identity", "no-subids", mounts(bind), f"{self.uid}:FIRST:65536", as_caller=False,
                      policy={"identity": {"ids": 1000}})
        self.assertEqual(self.run_in(case.how, case, "selftest").code, 1)
        self.check_doctor(case, case.remedy)
        run = self.run_in(case.how, case, "selftest", fix=self.script_of(case))
        self.assertEqual((run.code, run.out[-11:]), (0, "sandbox OK\n"), str(run))
        lines = (self.dir / "etc-subuid").read_text().splitlines()
        self.assertEqual(lines, ["other:100000:65536", f"{self.uid}:165536:65536"], "it begins behind the others'")

    @callers("root")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_open_files_are_counted_by_sessions(self):
        words = ["doctor", "--policy", AGENT, "--sessions-root", self.root, "--uid-base", self.uid, "--max-sessions"]
        few = ["prlimit", "--nofile=1024:1024"]
        self.assertIn("note: nofile-max (rlimits)", self.belljar(*words, 900, before=few).out)
        self.assertNotIn("nofile-max", self.belljar(*words, 100, before=few).out)
        self.assertNotIn("nofile-max", self.belljar(*words, 900, before=["prlimit", "--nofile=65536:65536"]).out)

    @callers("root")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_a_path_is_no_code_in_the_script_of_remedies(self):
        for name in ("a b", "a'b", 'a"b', "a;touch taken", "$(touch taken)", "`touch taken`", "a\ntouch taken\n",
                     "#\ntouch taken", "-R", "a\\"):
            with self.subTest(name=name):
                inner = self.root / name / "sessions"
                inner.mkdir(parents=True)
                inner.parent.chmod(0o700)
                words = ["--policy", AGENT, "--sessions-root", inner, "--uid-base", self.uid - 1, "--max-sessions", 1]
                run = self.belljar("doctor", *words)
                self.assertEqual(run.code, 1, str(run))
                self.assertIn("missing: workspace-unreachable", run.out)
                self.assertTrue(all(re.match("(back end|missing|weaker|note|  remedy): ", line)
                                    for line in run.out.splitlines()), run.out)
                script = self.work / "fix.sh"
                script.write_text(self.belljar("doctor", *words, "--fix-script").out)
                subprocess.run(["sh", script], cwd=self.work, check=True)
                self.assertEqual(sorted(path.name for path in self.work.iterdir() if path != script), [])
                self.assertEqual(inner.parent.stat().st_mode & 0o777, 0o701, "the remedy was applied")
                run = self.belljar("doctor", *words)
                self.assertNotIn("workspace-unreachable", run.out)

    @callers("user")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_settings_that_cannot_be_read_are_not_taken_for_none(self):
        script = ("mkdir {dir}/upper {dir}/work-of-it; mount -t overlay -o "
                  "lowerdir=/etc,upperdir={dir}/upper,workdir={dir}/work-of-it etc /etc; mkdir -p /etc/belljar; "
                  "chmod %s /etc/belljar")
        for mode, code in (("755", 0), ("700", 2)):
            with self.subTest(mode=mode):
                run = self.belljar("selftest", "--sessions-root", self.root, before=self.filled(mounts(script % mode)))
                self.assertEqual(run.code, code, str(run))
                if code:
                    self.assertIn("/etc/belljar/belljar.json: cannot read the settings: Permission denied", run.err)
                for name in ("upper", "work-of-it"):
                    shutil.rmtree(self.dir / name)

    @once
    def test_each_finding_is_in_the_documentation(self):
        code = (ROOT / "launcher" / "findings.cpp").read_text()
        listed = re.findall(r'"([a-z-]+)"', code.partition("finding_ids() {")[2].partition("}")[0])
        made = set(re.findall(r'\{"([a-z]+(?:-[a-z]+)*)",\s*"\w+",\s*(?:must \? )?Weight', code))
        page = set(re.findall(r"`([a-z-]+)`", "".join(line.split("|")[1] for line in
                   (ROOT / "docs" / "doctor.md").read_text().splitlines() if line.startswith("| `"))))
        self.assertEqual(page, {*listed, "launch", "degraded"})
        self.assertLessEqual(made, set(listed))
        self.assertGreater(len(made), 10)

    @callers("root")
    @not_sanitized
    def test_the_doctor_says_which_back_end_and_why(self):
        case = Broken("", "", [], "")
        text = self.run_in([], case, "doctor").out.splitlines()[0]
        if self.back_end == "modern":
            self.assertEqual(text, "back end: modern: clone3 and the new mount API work")
        else:
            self.assertEqual(text, "back end: legacy: clone3: ENOSYS")


class Cgroups(Places, HostTest):
    """Of version 1, as the test machines have them; the other layouts: findings_test.cpp."""

    LIMITS = {"memory": "512MiB", "processes": 100}

    def setUp(self):
        super().setUp()
        self.make_places()

    def doctor(self, limits, *options, before):
        run = self.belljar("doctor", "--json", "--policy", self.policy({"limits": limits}), "--sessions-root", self.root,
                           *options, before=before)
        return run, {item["id"]: item for item in run.json()["findings"]}

    @callers("user")
    @with_v1
    @not_sanitized
    def test_a_cgroup_that_is_not_the_callers_is_missing_or_weaker_and_the_script_makes_one(self):
        run, found = self.doctor(self.LIMITS, before=self.placed())
        self.assertEqual((run.code, "no-cgroup" in found), (0, False), f"the control: {run}")
        for place in self.places:
            for path in (place, place / "cgroup.procs"):
                os.chown(path, 0, 0)
        run, found = self.doctor({**self.LIMITS, "enforce": "prefer"}, before=self.placed())
        self.assertEqual((run.code, found["no-cgroup"]["weight"]), (0, "weaker"), str(run))
        run, found = self.doctor(self.LIMITS, before=self.placed())
        self.assertEqual((run.code, found["no-cgroup"]["weight"]), (1, "missing"), str(run))
        self.assertIn("limits.memory, limits.processes", found["no-cgroup"]["evidence"])
        policy = self.policy({"limits": self.LIMITS})
        words = ["--policy", policy, "--sessions-root", self.root]
        script = self.make_file("fix.sh", self.belljar("doctor", *words, "--fix-script", before=self.placed()).out)
        for place in self.places[:2]:
            self.addCleanup(remove_cgroup, place / f"belljar-{self.uid}")
        *shell, last, name = self.placed()
        mended = [*shell, last.replace("exec", f"BELLJAR_SHELL=$$ sh {script}; exec"), name]
        run = self.belljar("selftest", *words, before=mended)
        self.assertEqual((run.code, run.out), (0, "sandbox OK\n"), str(run))

    @callers("root")
    @back_ends("modern")
    @with_v1
    @not_sanitized
    def test_what_all_sessions_may_have_is_held_against_what_the_container_has(self):
        options = ["--uid-base", self.uid, "--max-sessions", 8]
        limits = {"memory": "512MiB", "processes": 64}
        _, found = self.doctor(limits, *options, before=self.placed())
        self.assertEqual({"pids-max", "memory-max"} & set(found), set())
        (self.places[0] / "memory.limit_in_bytes").write_text(str(2 << 30))
        (self.places[1] / "pids.max").write_text("400")
        _, found = self.doctor(limits, *options, before=self.placed())
        self.assertEqual({"pids-max", "memory-max"} & set(found), {"pids-max", "memory-max"})
        self.assertIn("pids_limit: 576", found["pids-max"]["remedy"])


if __name__ == "__main__":
    main()
