"""A workspace whose owner is mapped: the command works in it as its owner, and as nobody else."""

import os

from harness import SandboxTest, as_root, back_ends, callers, main

WORK = """
    open('made', 'w').close()
    say({'uid': os.getuid(), 'dir': os.stat('.').st_uid, 'old': os.stat('old').st_uid, 'made': os.stat('made').st_uid,
         'others': os.stat('others').st_uid, 'read': probe_open('old'), 'write': probe_open('old', os.O_RDWR),
         'closed': probe_open('others')})
"""


class MappedWorkspace(SandboxTest):

    def setUp(self):
        super().setUp()
        self.owner = self.uid + 1 if self.privileged else self.uid
        self.other = self.uid + 2
        self.make_file("work/old", "x", owner=self.owner, mode=0o600)
        self.make_file("work/others", "x", owner=self.other, mode=0o600)
        if self.privileged:
            os.chown(self.work, self.owner, self.owner)

    def mapped(self, **more):
        return {"filesystem": {"workspace": {"path": str(self.work), "idmap": "owner", **more}}}

    @as_root
    @callers("root")
    @back_ends("modern")
    def test_the_owners_files_are_the_commands_and_the_commands_the_owners(self):
        run = self.inside(WORK, policy=self.mapped())
        self.check_exited(run)
        found = run.json()
        self.assertEqual((found["uid"], found["dir"], found["old"], found["made"]), (self.uid,) * 4, str(run))
        self.assertEqual((found["read"], found["write"], found["closed"]), ("open", "open", "EACCES"), str(run))
        self.assertEqual(found["others"], 65534)
        about = (self.work / "made").stat()
        self.assertEqual((about.st_uid, about.st_gid), (self.owner, self.owner))
        self.assertEqual(run.record["degraded"], [])

    @as_root
    @callers("root")
    @back_ends("modern")
    def test_without_the_map_the_directory_is_closed_to_it(self):
        run = self.sandbox("true", policy=self.mapped(idmap="none"))
        self.check_refused(run, f"cannot be reached by uid {self.uid}")

    @as_root
    @callers("root")
    @back_ends("modern")
    def test_a_read_only_one_can_be_read_and_not_written(self):
        run = self.inside("say([probe_open('old'), create('new')])", policy=self.mapped(readonly=True))
        self.assertEqual(run.json(), ["open", "EROFS"], str(run))

    @as_root
    @callers("root")
    @back_ends("modern")
    def test_flags_and_map_reach_what_is_mounted_below(self):
        self.make_directory("work/sub")
        before = self.on_host(f"mount -t tmpfs -o mode=0700,uid={self.owner},gid={self.owner} tmpfs {self.work}/sub")
        code = "say([create('sub/new'), os.stat('sub').st_uid == os.getuid()])"
        self.assertEqual(self.inside(code, policy=self.mapped(), before=before).json(), ["open", True])
        read_only = self.inside(code, policy=self.mapped(readonly=True), before=before)
        self.assertEqual(read_only.json(), ["EROFS", True], str(read_only))

    @as_root
    @callers("root")
    @back_ends("modern")
    def test_an_inside_uid_and_landlock_go_with_it(self):
        policy = {**self.mapped(), "identity": {"inside_uid": 0, "inside_gid": 0}, "landlock": {"filesystem": True}}
        run = self.inside("open('made', 'w').close(); say([os.stat('old').st_uid, probe_open('old')])", policy=policy)
        self.assertEqual(run.json(), [0, "open"], str(run))
        self.assertEqual((self.work / "made").stat().st_uid, self.owner)

    @as_root
    @callers("root")
    @back_ends("modern")
    def test_can_answers_for_the_owner(self):
        policy = self.policy(self.mapped())
        run = self.belljar("explain", "--policy", policy, f"--can=write:{self.work}/old", f"--can=read:{self.work}/others")
        self.assertIn(f"write:{self.work}/old: yes", run.out)
        self.assertIn(f"read:{self.work}/others: no", run.out)

    @as_root
    @callers("root", "five")
    def test_roots_own_files_are_never_the_commands(self):
        os.chown(self.work, 0, 0)
        self.check_refused(self.sandbox("true", policy=self.mapped()), "cannot be mapped", "filesystem.workspace.idmap")

    @as_root
    @callers("root")
    @back_ends("modern")
    def test_a_file_system_that_cannot_is_named_and_with_prefer_bound_as_it_is(self):
        self.make_directory("lower", owner=self.owner)
        for name in ("upper", "scratch"):
            self.make_directory(name, owner=self.owner)
        layers = f"lowerdir={self.dir}/lower,upperdir={self.dir}/upper,workdir={self.dir}/scratch"
        # An overlay is not among the file systems that can be idmapped.
        before = self.on_host(f"mount -t overlay -o {layers} overlay {self.work}; chmod 0755 {self.work}")
        run = self.sandbox("true", policy=self.mapped(), before=before)
        self.check_refused(run, "map the owner of", "EINVAL", "cannot be idmapped")
        run = self.inside("say(os.getuid())", policy=self.mapped(enforce="prefer"), before=before)
        self.check_exited(run)
        self.assertEqual([item["control"] for item in run.record["degraded"]], ["filesystem"])
        self.assertIn("bound as it is", run.record["degraded"][0]["what"])

    @as_root
    @callers("five")
    def test_without_cap_sys_admin_it_is_refused_and_with_prefer_bound_as_it_is(self):
        self.work.chmod(0o755)
        self.check_refused(self.sandbox("true", policy=self.mapped()), "belljar has no CAP_SYS_ADMIN",
                           '"enforce": "prefer"')
        run = self.inside("say(os.stat('.').st_uid == os.getuid())", policy=self.mapped(enforce="prefer"))
        self.assertIs(run.json(), False, str(run))
        self.assertIn("CAP_SYS_ADMIN", run.record["degraded"][0]["what"])

    @as_root
    @callers("root")
    @back_ends("legacy")
    def test_without_the_new_calls_it_is_refused_and_with_prefer_bound_as_it_is(self):
        self.work.chmod(0o755)
        self.check_refused(self.sandbox("true", policy=self.mapped()), "ENOSYS", "the mount API of Linux 5.12",
                           "filesystem.workspace.idmap")
        run = self.inside("say([os.stat('.').st_uid == os.getuid(), probe_open('old')])",
                          policy=self.mapped(enforce="prefer"))
        self.assertEqual(run.json(), [False, "EACCES"], str(run))
        self.assertIn("bound as it is", run.record["degraded"][0]["what"])

    @as_root
    @callers("root")
    @back_ends("modern")
    def test_the_legacy_back_end_refuses_it_where_the_calls_are_there(self):
        self.work.chmod(0o755)
        env = {"PATH": os.environ["PATH"], "BELLJAR_BACK_END": "legacy"}
        run = self.sandbox("true", policy=self.mapped(), env=env, any_back_end=True)
        self.check_refused(run, "the legacy back end has no move_mount")
        run = self.sandbox("true", policy=self.mapped(enforce="prefer"), env=env, any_back_end=True)
        self.check_exited(run)
        self.assertEqual(run.record["back_end"], "legacy")
        self.assertIn("bound as it is", run.record["degraded"][0]["what"])

    @callers("user")
    def test_ones_own_directory_needs_no_map(self):
        run = self.inside("open('made', 'w').close(); say(os.stat('old').st_uid == os.getuid())", policy=self.mapped())
        self.assertIs(run.json(), True, str(run))
        self.assertEqual(run.record["degraded"], [])

    @as_root
    @callers("root")
    @back_ends("modern")
    def test_no_planted_link_is_mapped(self):
        self.make_directory("host", owner=self.owner)
        link = self.make_link("work/link", self.dir / "host", owner=self.owner)
        run = self.sandbox("true", policy=self.mapped(path=str(link)))
        self.check_refused(run, "so it is not followed", "ELOOP")


if __name__ == "__main__":
    main()
