"""Links that an earlier run planted in its workspace decide nothing about the next launch (L05, L06;
the race of L07 is in tests/adversarial)."""

import os

from harness import SandboxTest, as_root, main

SECRET = "the host's secret"


def bind(source, **more):
    return {"type": "bind", "source": str(source), **more}


class Planted(SandboxTest):

    def setUp(self):
        super().setUp()
        self.host = self.make_directory("host", owner=self.uid)
        self.make_file("host/secret", SECRET)
        self.listing = self.look()

    def look(self):
        """All that a launch could change about the target."""
        return [(name, os.stat(self.host / name).st_mtime_ns) for name in sorted(os.listdir(self.host))] + \
            [os.stat(self.host).st_mtime_ns]

    def plant(self, name, text):
        return self.make_link(f"work/{name}", text, owner=self.uid)

    def check_not_followed(self, mounts, *texts, **filesystem):
        run = self.inside("say(sorted(os.listdir('/data')) if os.path.exists('/data') else [])",
                          policy={"filesystem": {"mounts": mounts, **filesystem}})
        self.check_refused(run, "so it is not followed", "ELOOP", *texts)
        self.assertEqual(self.look(), self.listing)


class Sources(Planted):

    def test_a_planted_link_is_no_bind_source(self):
        link = self.plant("data", self.host)
        self.check_not_followed({"/data": bind(link)}, f'the symbolic link {link} belongs to uid', 'filesystem.mounts["/data"]')

    def test_nor_is_one_in_the_middle_of_the_path(self):
        self.make_directory("host/sub")
        self.listing = self.look()
        self.plant("middle", self.host)
        self.check_not_followed({"/data": bind(self.work / "middle/sub")}, '/middle belongs to uid')

    def test_nor_are_relative_links_and_chains(self):
        self.plant("up", "../host")
        self.plant("first", "second")
        self.plant("second", "up")
        for name in ("up", "first"):
            self.check_not_followed({"/data": bind(self.work / name)}, 'belongs to uid')

    def test_an_optional_bind_does_not_pass_over_a_planted_link(self):
        link = self.plant("data", self.host)
        self.check_not_followed({"/data": bind(link, optional=True)})

    def test_links_to_proc_and_dev_are_refused(self):
        for text in ("/proc/self/root", "/proc/1/root", "/dev", "/", ".."):
            link = self.plant("data", text)
            self.check_not_followed({"/data": bind(link)})
            link.unlink()

    def test_magic_links_are_refused_whoever_made_the_link_to_them(self):
        run = self.sandbox("true", policy={"filesystem": {"mounts": {"/data": bind("/proc/self/root/etc")}}})
        self.check_refused(run, "ELOOP")

    @as_root
    def test_a_link_of_roots_is_followed(self):
        link = self.make_link("work/data", self.host, owner=0)
        run = self.inside("say(os.listdir('/data'))", policy={"filesystem": {"mounts": {"/data": bind(link)}}})
        self.assertEqual(run.json(), ["secret"], str(run))

    def test_nor_does_the_command_line_follow_one(self):
        link = self.plant("data", self.host)
        for options in (["-v", f"{link}:/data:ro"], ["--workspace", str(link)]):
            run = self.inside("say(os.listdir('/data'))", options=options)
            self.check_refused(run, "so it is not followed", "ELOOP")

    @as_root
    def test_a_link_of_another_uid_is_as_planted_as_one_of_the_sessions(self):
        link = self.make_link("work/data", self.host, owner=self.uid + 1)
        self.check_not_followed({"/data": bind(link)}, "belongs to uid")

    def test_a_planted_link_is_no_workspace(self):
        link = self.plant("next", self.host)
        run = self.sandbox("true", policy={"filesystem": {"workspace": {"path": str(link)}}})
        self.check_refused(run, "not followed")


class Targets(Planted):

    def test_nothing_is_mounted_through_a_planted_link(self):
        self.plant("link", self.host)
        inner = self.make_directory("inner")
        self.make_directory("host/sub")
        self.listing = self.look()
        for name in ("link", "link/sub", "link/missing"):
            self.check_not_followed({f"{self.work}/{name}": bind(inner)}, 'link" on the way')
            self.check_not_followed({f"{self.work}/{name}": {"type": "tmpfs"}}, 'link" on the way')
            self.check_not_followed({f"{self.work}/{name}": {"type": "proc"}}, 'link" on the way')
            self.check_not_followed({f"{self.work}/{name}": {"type": "dev"}}, 'link" on the way')

    def test_nothing_is_masked_through_a_planted_link(self):
        self.plant("link", "/usr")
        run = self.sandbox("true", policy={"filesystem": {"mask": {f"{self.work}/link/bin": "a test"}}})
        self.check_refused(run, "uncover it in the next run", 'filesystem.mask')
        self.assertEqual(self.look(), self.listing)

    def test_a_planted_link_that_leads_nowhere_is_not_filled(self):
        self.plant("link", self.host / "new")
        self.check_not_followed({f"{self.work}/link": bind(self.work)})

    @as_root
    def test_whoever_owns_a_link_where_a_command_can_write_nothing_is_mounted_through_it(self):
        self.make_link("work/link", self.host, owner=0)
        inner = self.make_directory("inner")
        run = self.sandbox("true", policy={"filesystem": {"mounts": {f"{self.work}/link/sub": bind(inner)}}})
        self.check_refused(run, 'filesystem.mounts', "ELOOP")
        self.assertEqual(self.look(), self.listing)

    def test_a_link_that_the_policy_makes_is_followed(self):
        inner = self.make_directory("inner")
        self.make_file("inner/found")
        self.make_directory("outer/sub")
        mounts = {"/data": bind(self.dir / "outer"), "/to": {"type": "symlink", "source": "data"},
                  "/to/sub": bind(inner)}
        run = self.inside("say(os.listdir('/data/sub'))", policy={"filesystem": {"mounts": mounts}})
        self.assertEqual(run.json(), ["found"], str(run))


class EarlierLinks(Planted):
    """What an earlier command could write is shown read-only now, which makes its links no better."""

    def setUp(self):
        super().setUp()
        self.state = self.make_directory("state", owner=self.uid)
        self.data = self.make_directory("data")
        self.make_file("data/found")
        (self.data / "sub").mkdir()
        self.listing = self.look()

    def shown(self):
        """Each way to show it read-only, with the work directory that a writable overlay would have."""
        low = self.make_directory("low")
        layers = {"type": "overlay", "lower": [str(low)], "readonly": True}
        work = str(self.make_directory("scratch", owner=self.uid))
        return {"bind": bind(self.state), "upper": {**layers, "upper": str(self.state), "work": work},
                "lower": {**layers, "lower": [str(low), str(self.state)]}}

    def run_with(self, shown, mounts, code="say([sorted(os.listdir('/data')), os.listdir('/data/sub')])", **filesystem):
        base = {"/data": bind(self.data), "/s": shown}
        return self.inside(code, policy={"filesystem": {"mounts": {**base, **mounts}, **filesystem}})

    def check_refused_everywhere(self, mounts, **filesystem):
        for name, shown in self.shown().items():
            with self.subTest(name):
                run = self.run_with(shown, mounts, **filesystem)
                self.check_refused(run, 'a symbolic link "link" on the way', "so it is not followed", "ELOOP")

    def test_nothing_is_mounted_through_a_link_that_an_earlier_command_made(self):
        self.make_link("state/link", "/data", owner=self.uid)
        for target in ("/s/link", "/s/link/sub"):
            for mount in ({"type": "tmpfs"}, bind(self.host), {"type": "proc"}, {"type": "dev"}):
                self.check_refused_everywhere({target: mount})

    @as_root
    def test_nor_through_one_of_another_uid(self):
        self.make_link("state/link", "/data", owner=self.uid + 1)
        self.check_refused_everywhere({"/s/link/sub": {"type": "tmpfs"}})

    @as_root
    def test_one_of_roots_is_followed(self):
        self.make_link("state/link", "/data", owner=0)
        for name, shown in self.shown().items():
            with self.subTest(name):
                run = self.run_with(shown, {"/s/link/sub": bind(self.host)})
                self.check_exited(run)
                self.assertEqual(run.json(), [["found", "sub"], ["secret"]])

    def test_a_mask_is_not_led_elsewhere_by_one(self):
        self.make_link("state/link", "/data/sub", owner=self.uid)
        self.check_refused_everywhere({}, mask={"/s/link": "a test"})

    def test_where_one_leads_to_nothing_there_is_nothing_to_mask(self):
        self.make_link("state/link", "/nowhere", owner=self.uid)
        for shown in self.shown().values():
            self.check_exited(self.run_with(shown, {}, mask={"/s/link": "a test", "/s/link/sub": "a test"}))

    def test_in_a_writable_directory_a_mask_of_one_is_refused_wherever_it_leads(self):
        self.plant("link", "/nowhere")
        run = self.sandbox("true", policy={"filesystem": {"mask": {f"{self.work}/link": "a test"}}})
        self.check_refused(run, 'a symbolic link "link" on the way', "ELOOP")

    def test_the_links_of_the_sandboxs_own_dev_are_its_own(self):
        code = "say([attempt(lambda: os.open('/dev/pts/ptmx', os.O_RDWR)), os.readlink('/dev/ptmx')])"
        for mask, expected in (({}, "open"), ({"/dev/ptmx": "a test"}, "EACCES")):
            run = self.inside(code, policy={"filesystem": {"mask": mask}})
            self.check_exited(run)
            self.assertEqual(run.json(), [expected, "pts/ptmx"])


if __name__ == "__main__":
    main()
