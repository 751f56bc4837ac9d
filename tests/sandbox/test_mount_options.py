"""Message queues, and the options that every kind of mount takes."""

from harness import SandboxTest, main

FLAGS = "say({l.split()[4]: l.split()[5].split(',') for l in open('/proc/self/mountinfo')})"
# mq_open(3): O_CREAT | O_RDWR | O_EXCL
OPEN_QUEUE = """
    import ctypes
    def queue(name): return call('mq_open', name, 0o302, 0o600, None)
"""


def mounts(**pieces):
    return {"filesystem": {"mounts": {f"/{name.replace('_', '/')}": piece for name, piece in pieces.items()}}}


class Queues(SandboxTest):

    def test_queues_are_files_below_the_mount(self):
        code = OPEN_QUEUE + """
    say([queue('/q'), os.listdir('/dev/mqueue'), open('/dev/mqueue/q').read().split()[0],
         attempt(os.unlink, '/dev/mqueue/q'), os.listdir('/dev/mqueue')])
"""
        run = self.inside(code, policy=mounts(dev_mqueue={"type": "mqueue"}))
        self.assertEqual(run.json(), ["open", ["q"], "QSIZE:0", "open", []], str(run))

    def test_without_the_mount_there_is_no_place_for_it(self):
        run = self.inside("say(os.path.exists('/dev/mqueue'))")
        self.assertIs(run.json(), False, str(run))

    def test_it_can_lie_anywhere(self):
        run = self.inside(OPEN_QUEUE + "\n    say([queue('/q'), os.listdir('/queues')])",
                          policy=mounts(queues={"type": "mqueue"}))
        self.assertEqual(run.json(), ["open", ["q"]], str(run))

    def test_no_queue_is_left_for_the_next_sandbox(self):
        for _ in range(2):
            run = self.inside(OPEN_QUEUE + "\n    say([os.listdir('/queues'), queue('/q')])",
                              policy=mounts(queues={"type": "mqueue"}))
            self.assertEqual(run.json(), [[], "open"], str(run))

    def test_it_is_mounted_without_programs_and_devices(self):
        flags = self.inside(FLAGS, policy=mounts(dev_mqueue={"type": "mqueue", "nosuid": True})).json()["/dev/mqueue"]
        self.assertLessEqual({"nosuid", "nodev", "noexec"}, set(flags))

    def test_the_hosts_queues_are_refused(self):
        policy = {**mounts(dev_mqueue={"type": "mqueue"}), "namespaces": {"ipc": "shared"}}
        run = self.sandbox("true", policy=policy)
        self.assertEqual(run.code, 125, str(run))
        self.assertIn("would be the host's queues", run.err)

    def test_landlock_leaves_them_usable(self):
        code = OPEN_QUEUE + "\n    say([queue('/q'), probe_open('/dev/mqueue/q', os.O_RDWR), attempt(os.unlink, '/dev/mqueue/q')])"
        run = self.inside(code, policy={**mounts(dev_mqueue={"type": "mqueue"}), "landlock": {"filesystem": True}})
        self.assertEqual(run.json(), ["open"] * 3, str(run))

    def test_no_mount_point_for_them_is_made_on_the_host(self):
        outer = self.make_directory("outer", owner=self.uid)
        policy = mounts(outer={"type": "bind", "source": str(outer), "readonly": False}, outer_q={"type": "mqueue"})
        self.check_refused(self.sandbox("true", policy=policy), 'filesystem.mounts["/outer/q"]', "ENOENT")


class Options(SandboxTest):

    def test_noatime_is_the_mounts_that_asks_for_it(self):
        pieces = mounts(a={"type": "tmpfs", "noatime": True}, b={"type": "tmpfs"})
        flags = self.inside(FLAGS, policy=pieces).json()
        self.assertIn("noatime", flags["/a"])
        self.assertIn("relatime", flags["/b"])

    def test_each_flag_of_a_tmpfs_is_its_own(self):
        for flag, word in (("noexec", "noexec"), ("readonly", "ro"), ("noatime", "noatime")):
            flags = set(self.inside(FLAGS, policy=mounts(t={"type": "tmpfs", flag: True})).json()["/t"])
            self.assertLessEqual({word, "nosuid", "nodev"}, flags)
            self.assertEqual({"noexec", "ro", "noatime"} & flags, {word})
        loose = self.inside(FLAGS, policy=mounts(t={"type": "tmpfs", "nosuid": False})).json()["/t"]
        self.assertNotIn("nosuid", loose)

    def test_a_devs_noexec_reaches_its_shared_memory(self):
        code = """
            import shutil, subprocess
            shutil.copy('/tools/setuid_probe', '/dev/shm/p')
            say(attempt(lambda: subprocess.run(['/dev/shm/p'], capture_output=True)))
        """
        for landlock in ({}, {"filesystem": True}):
            policy = {**mounts(dev={"type": "dev", "noexec": True}), "landlock": landlock}
            self.assertEqual(self.inside(code, policy=policy).json(), "EACCES")
        self.assertEqual(self.inside(code).json(), "open")


if __name__ == "__main__":
    main()
