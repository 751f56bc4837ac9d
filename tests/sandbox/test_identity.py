"""Identity: the payload is its own user, in no group of the caller's."""

import fcntl
import os
import struct

from harness import AS_ROOT, SandboxTest, as_root, callers, descendants, main

NOBODY = 65534
NS_GET_OWNER_UID = 0xB704
MANY_GROUPS = list(range(40000, 40300))  # More than a first guess at the size of the list.


def status_outside(pid):
    with open(f"/proc/{pid}/status") as file:
        return {key: value.split() for key, value in (line.split(":", 1) for line in file)}


class Ids(SandboxTest):

    def test_all_four_uids_and_gids_are_the_sessions(self):
        run = self.inside("s = status(); say([s['Uid'].split(), s['Gid'].split()])")
        self.check_exited(run)
        self.assertEqual(run.json(), [[str(self.uid)] * 4, [str(self.gid)] * 4])

    def test_the_host_sees_the_sessions_ids_for_init_and_payload(self):
        running = self.start_sandbox("sleep", "30", status=True)
        init = running.wait_until_started()
        family = [init] + [pid for pid, _, _ in descendants(init)]
        self.assertEqual(len(family), 2)
        for pid in family:
            self.assertEqual(status_outside(pid)["Uid"], [str(self.uid)] * 4)
            self.assertEqual(status_outside(pid)["Gid"], [str(self.gid)] * 4)

    def test_the_sessions_uid_owns_the_user_namespace(self):
        running = self.start_sandbox("sleep", "30", status=True)
        init = running.wait_until_started()
        with open(f"/proc/{descendants(init)[0][0]}/ns/user") as namespace:
            owner = fcntl.ioctl(namespace, NS_GET_OWNER_UID, b"\0" * 4)
        self.assertEqual(struct.unpack("I", owner)[0], self.uid)

    def test_inside_ids_are_mapped_to_the_outside_ones(self):
        run = self.inside("open('made', 'w').close(); say([os.getresuid(), os.getresgid()])",
                          policy={"identity": {"inside_uid": 1000, "inside_gid": 1001}})
        self.check_exited(run)
        self.assertEqual(run.json(), [[1000] * 3, [1001] * 3])
        made = os.stat(self.work / "made")
        self.assertEqual((made.st_uid, made.st_gid), (self.uid, self.gid))

    def test_uid_0_inside_gives_no_power_over_the_host(self):
        secret = self.make_file("secret", "x", mode=0o600)
        run = self.inside("""
            open('f', 'w').close()
            say([os.getuid(), probe_open('/secret'), attempt(os.chown, 'f', 5, 5)])
        """, policy={"identity": {"inside_uid": 0, "inside_gid": 0},
                     "filesystem": {"mounts": {"/secret": {"type": "bind", "source": str(secret)}}}})
        self.check_exited(run)
        expected = "EACCES" if AS_ROOT else "open"
        self.assertEqual(run.json(), [0, expected, "EINVAL"])

    def test_no_other_uid_can_be_taken(self):
        run = self.inside("say([attempt(os.setresuid, 0, 0, 0), attempt(os.setresuid, 1, 1, 1),"
                          " attempt(os.setresgid, 0, 0, 0), attempt(os.setgroups, [0])])")
        self.check_exited(run)
        self.assertEqual(run.json(), ["EINVAL", "EINVAL", "EINVAL", "EPERM"])

    @callers("user")
    def test_a_plain_user_runs_as_itself(self):
        run = self.inside("say(os.getuid())", policy={"identity": {"uid": "caller"}})
        self.assertEqual(run.json(), self.uid)

    @callers("root", "five")
    def test_root_without_a_uid_runs_as_nobody(self):
        for identity in ({"uid": "caller", "gid": "caller"}, None):
            run = self.inside("say([os.getuid(), os.getgid()])",
                              policy={"identity": identity, "filesystem": {"workspace": None}})
            self.check_exited(run)
            self.assertEqual(run.json(), [NOBODY, NOBODY])

    @callers("root", "five")
    def test_a_numbered_uid_brings_its_own_group(self):
        run = self.inside("say(os.getresgid())", policy={"identity": {"uid": self.uid, "gid": None}})
        self.assertEqual(run.json(), [self.uid] * 3)

    @callers("root", "five")
    def test_a_group_can_be_given_beside_the_uid(self):
        run = self.inside("say(os.getresgid())", policy={"identity": {"gid": self.uid + 1}})
        self.assertEqual(run.json(), [self.uid + 1] * 3)

    @callers("user")
    def test_another_uid_or_gid_is_refused_to_a_plain_user(self):
        for member, number in (("uid", self.uid + 1), ("uid", 0), ("gid", self.gid + 1), ("gid", 0)):
            with self.subTest(member=member, number=number):
                run = self.sandbox("true", policy={"identity": {member: number}})
                self.check_refused(run, f"id {number} is not the caller's own", f"identity.{member}", "EPERM",
                                   "remedy: run belljar as root")

    def test_ids_from_the_pool_are_the_services(self):
        run = self.sandbox("true", policy={"identity": {"uid": "pool"}})
        self.check_refused(run, '"pool" ids come from the launch service')

    def test_ids_that_are_no_ids_are_refused(self):
        for text in ("-1", "4294967295", "4294987296", "1e3", "\"0x0\"", "\" 20000\"", "null0", "20000.5"):
            with self.subTest(uid=text):
                run = self.belljar("run", "--policy", self.policy(), f"--set=identity.uid={text}", "--", "true")
                self.check_refused(run, "identity.uid")


class UidZero(SandboxTest):
    IDENTITY = {"identity": {"uid": 0, "gid": 0}, "filesystem": {"workspace": None}}

    @callers("root")
    def test_uid_0_outside_is_had_when_it_is_written_out(self):
        running = self.start_sandbox("sleep", "30", policy=self.IDENTITY, status=True)
        init = running.wait_until_started()
        self.assertEqual(status_outside(descendants(init)[0][0])["Uid"], ["0"] * 4)

    @callers("five")
    def test_uid_0_outside_is_refused_without_setfcap(self):
        run = self.sandbox("true", policy=self.IDENTITY)
        self.check_refused(run, "EPERM", "CAP_SETFCAP", "--set identity.uid=N")

    @callers("root")
    def test_uid_0_outside_has_no_capabilities_and_reads_no_root_only_file_of_others(self):
        owned = self.make_file("owned", "x", owner=self.uid, mode=0o600)
        run = self.inside("s = status(); say([s['CapEff'], s['CapBnd'], probe_open('/owned')])",
                          policy={**self.IDENTITY, "filesystem": {
                              "workspace": None, "mounts": {"/owned": {"type": "bind", "source": str(owned)}}}})
        self.check_exited(run)
        self.assertEqual(run.json(), ["0" * 16, "0" * 16, "EACCES"])

    @callers("root", "five")
    def test_nproc_is_refused_because_it_does_not_bind_uid_0(self):
        run = self.sandbox("true", policy={**self.IDENTITY, "limits": {"rlimits": {"nproc": 10}}})
        self.check_refused(run, "rlimit nproc does not bind uid 0 of the host", 'limits.rlimits.nproc')


class Groups(SandboxTest):

    @callers("root", "five")
    def test_a_privileged_callers_groups_are_dropped(self):
        groups_file = self.make_file("groups-only", "x", mode=0o640)
        os.chown(groups_file, 0, 27)
        policy = {"filesystem": {"mounts": {"/f": {"type": "bind", "source": str(groups_file)}}}}
        run = self.inside("say([os.getgroups(), probe_open('/f')])", policy=policy, groups=(4, 27))
        self.check_exited(run)
        self.assertEqual(run.json(), [[], "EACCES"])
        self.assertEqual(run.record["degraded"], [])

    @callers("root", "five")
    def test_groups_that_the_policy_names_are_given(self):
        groups_file = self.make_file("groups-only", "x", mode=0o640)
        os.chown(groups_file, 0, 27)
        policy = {"identity": {"groups": [27]},
                  "filesystem": {"mounts": {"/f": {"type": "bind", "source": str(groups_file)}}}}
        run = self.inside("say([len(os.getgroups()), probe_open('/f')])", policy=policy)
        self.check_exited(run)
        self.assertEqual(run.json(), [1, "open"])

    @as_root
    @callers("user")
    def test_a_plain_users_groups_refuse_the_launch(self):
        run = self.sandbox("true", groups=(4, 27))
        self.check_refused(run, "the caller's supplementary groups (4, 27) stay", "identity.groups",
                           "--set identity.enforce=prefer")

    @as_root
    @callers("user")
    def test_a_plain_users_groups_stay_when_preferred_and_the_record_says_so(self):
        run = self.inside("say(len(os.getgroups()))", policy={"identity": {"enforce": "prefer"}}, groups=(4, 27))
        self.check_exited(run)
        self.assertEqual(run.json(), 2)
        self.assertEqual([item["control"] for item in run.record["degraded"]], ["identity"])
        self.assertIn("(4, 27)", run.record["degraded"][0]["what"])

    @as_root
    @callers("user")
    def test_strict_refuses_a_user_with_groups_and_runs_one_without(self):
        with_groups = self.sandbox("true", policy="builtin:strict@1", groups=(4,))
        self.check_refused(with_groups, "supplementary groups (4) stay")
        without = self.sandbox("true", policy="builtin:strict@1")
        self.check_exited(without)

    @callers("root", "five")
    def test_three_hundred_groups_of_a_privileged_caller_are_dropped_to_the_last(self):
        run = self.inside("say(os.getgroups())", groups=MANY_GROUPS)
        self.check_exited(run)
        self.assertEqual((run.json(), run.record["degraded"]), ([], []))

    @as_root
    @callers("user")
    def test_three_hundred_groups_of_a_plain_user_are_told_to_the_last(self):
        self.check_refused(self.sandbox("true", groups=MANY_GROUPS), "40000, 40001", ", 40299) stay")
        run = self.inside("say(len(os.getgroups()))", policy={"identity": {"enforce": "prefer"}}, groups=MANY_GROUPS)
        self.check_exited(run)
        self.assertEqual(run.json(), len(MANY_GROUPS))
        self.assertIn(", 40299)", run.record["degraded"][0]["what"])

    @callers("root", "five")
    def test_three_hundred_groups_of_the_policy_are_given_to_the_last(self):
        run = self.inside("say(len(os.getgroups()))", policy={"identity": {"groups": MANY_GROUPS}})
        self.check_exited(run)
        self.assertEqual(run.json(), len(MANY_GROUPS))

    def test_setgroups_is_denied_in_the_namespace(self):
        run = self.inside("say(open('/proc/self/setgroups').read().strip())")
        self.assertEqual(run.json(), "deny")


class HostnameAndUmask(SandboxTest):

    def test_the_hostname_is_the_policys_and_the_hosts_stays(self):
        before = os.uname().nodename
        run = self.inside("say(os.uname().nodename)", policy={"identity": {"hostname": "bell.jar"}})
        self.assertEqual(run.json(), "bell.jar", str(run))
        self.assertEqual(os.uname().nodename, before)

    def test_the_hosts_name_is_seen_without_one(self):
        self.assertEqual(self.inside("say(os.uname().nodename)").json(), os.uname().nodename)

    def test_a_hostname_without_an_own_uts_namespace_is_refused(self):
        run = self.sandbox("true", policy={"identity": {"hostname": "x"}, "namespaces": {"uts": "shared"}})
        self.check_refused(run, "would rename the host")

    def test_the_umask_is_the_policys_not_the_callers(self):
        wrap = ["sh", "-c", 'umask 000; exec "$@"', "sh"]
        for text in ("077", "022", "000"):
            run = self.inside("say(os.umask(0))", policy={"identity": {"umask": text}}, wrap=wrap)
            self.assertEqual(run.json(), int(text, 8), str(run))


if __name__ == "__main__":
    main()
