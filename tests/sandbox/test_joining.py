"""Joining namespaces by path: the sandbox is in the one that is named, and in no other kind or by no other way."""

import os
import pathlib
import subprocess

from harness import SandboxTest, as_root, callers, main, wait_for

OWNED = ("net", "ipc", "uts", "cgroup")
FLAGS = {"net": "--net", "ipc": "--ipc", "uts": "--uts", "cgroup": "--cgroup", "time": "--time", "user": "--user"}
READ = "say({kind: os.readlink('/proc/self/ns/' + kind) for kind in %r})"


class JoinTest(SandboxTest):

    def __init_subclass__(cls, **kwargs):
        for name, test in vars(cls).items():
            if name.startswith("test_"):
                as_root(test)
        super().__init_subclass__(**kwargs)

    def place(self, *kinds, by_user=False, options=(), script="exec sleep 1000"):
        """A process that is in new namespaces of these kinds: its /proc/PID/ns."""
        command = ["unshare", *(FLAGS[kind] for kind in kinds), *options, "sh", "-ec", script]
        if by_user:
            command = ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups",
                       "--inh-caps=-all", *command]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_for(lambda: pathlib.Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n",
                 what="the namespaces")
        return pathlib.Path(f"/proc/{process.pid}/ns")

    def users_place(self, map_option="--map-current-user"):
        """Namespaces that belong to a user namespace of the session's uid."""
        return self.place("user", *OWNED, by_user=True, options=[map_option])

    def joining(self, place, *kinds):
        changes = {"namespaces": {kind: str(place / kind) for kind in kinds if kind != "net"}}
        if "net" in kinds:
            changes["network"] = {"mode": str(place / "net")}
        return changes


class Joined(JoinTest):

    @callers("root")
    def test_each_kind_is_the_one_that_is_named(self):
        kinds = (*OWNED, "time")
        place = self.place(*kinds)
        links = {kind: os.readlink(place / kind) for kind in kinds}
        run = self.inside(READ % (kinds,), policy=self.joining(place, *kinds))
        self.check_exited(run)
        self.assertEqual(run.json(), links)
        without = self.inside(READ % (kinds,)).json()
        self.assertEqual([kind for kind in kinds if without[kind] == links[kind]], [])

    @callers("root")
    def test_one_alone_leaves_the_others_new(self):
        place = self.place(*OWNED)
        for kind in OWNED:
            run = self.inside(READ % (OWNED,), policy=self.joining(place, kind))
            self.check_exited(run)
            same = [other for other in OWNED if run.json()[other] == os.readlink(place / other)]
            self.assertEqual(same, [kind], str(run))

    @callers("root")
    def test_what_is_in_it_is_seen(self):
        place = self.place("uts", "net", script="hostname joined; ip addr add 198.51.100.7 dev lo; exec sleep 1000")
        code = """
            import socket
            say([os.uname().nodename, attempt(lambda: socket.socket().bind(("198.51.100.7", 0)))])
        """
        run = self.inside(code, policy=self.joining(place, "uts", "net"))
        self.assertEqual(run.json(), ["joined", "open"], str(run))
        self.assertEqual(self.inside(code).json(), [os.uname().nodename, "EADDRNOTAVAIL"])

    @callers("root")
    def test_it_ends_with_the_command_and_the_namespace_stays(self):
        place = self.place("net")
        self.check_exited(self.sandbox("sh", "-c", "sleep 30 & exit 3", policy=self.joining(place, "net")), 3)
        self.assertTrue(os.readlink(place / "net"))

    def test_a_user_namespace_brings_what_it_owns(self):
        place = self.users_place()
        kinds = ("user", *OWNED)
        run = self.inside(READ % (kinds,), policy=self.joining(place, *kinds))
        self.check_exited(run)
        self.assertEqual(run.json(), {kind: os.readlink(place / kind) for kind in kinds})

    def test_in_a_user_namespace_that_is_joined_the_command_is_as_powerless(self):
        place = self.users_place()
        run = self.inside("""
            s = status()
            say([os.getresuid(), s['CapEff'], s['CapBnd'], s['NoNewPrivs'], os.getpid(),
                 in_child(lambda: call('unshare', 0x10000000)), attempt(os.setresuid, 0, 0, 0),
                 probe_open('/proc/1/ns/user')])
        """, policy=self.joining(place, "user", "net"))
        self.check_exited(run)
        self.assertEqual(run.json(), [[self.uid] * 3, "0" * 16, "0" * 16, "1", 2, "EPERM", "EINVAL", "EACCES"])

    def test_a_user_namespace_alone_can_be_joined(self):
        run = self.inside(READ % (("user", "net"),), policy=self.joining(self.users_place(), "user"))
        self.check_exited(run)
        self.assertNotEqual(run.json()["net"], os.readlink("/proc/self/ns/net"))

    def test_it_has_to_call_the_session_what_the_policy_says(self):
        place = self.users_place("--map-root-user")
        policy = self.joining(place, "user")
        run = self.sandbox("true", policy=policy)
        self.check_refused(run, "the user namespace calls the session uid 0, gid 0", "identity.inside_uid",
                           "namespaces.user")
        run = self.inside("say(os.getuid())", policy={**policy, "identity": {"inside_uid": 0, "inside_gid": 0}})
        self.check_exited(run)
        self.assertEqual(run.json(), 0)


class Refused(JoinTest):

    def test_a_user_namespace_that_lacks_the_sessions_id_is_named_so(self):
        place = self.place("user", *OWNED, by_user=True, options=["--map-user=5", "--map-group=5"],
                           script="exec sleep 1000")
        policy = {**self.joining(place, "user"), "identity": {"inside_uid": 65534, "inside_gid": 65534}}
        self.check_refused(self.sandbox("true", policy=policy), "the user namespace calls the session uid 5, gid 5")

    @callers("root")
    def test_ids_that_are_not_mapped_are_not_taken_for_nobody(self):
        place = self.place("user", options=["--map-root-user"])
        policy = {**self.joining(place, "user"), "identity": {"inside_uid": 65534, "inside_gid": 65534}}
        run = self.sandbox("true", policy=policy)
        self.check_refused(run, f"the user namespace does not map the session's uid {self.uid}", "EOVERFLOW",
                           "namespaces.user", "join one whose maps have the session's ids")

    @callers("root")
    def test_belljars_own_user_namespace_is_not_another_one(self):
        run = self.sandbox("true", policy={"namespaces": {"user": f"/proc/{os.getpid()}/ns/user"}})
        self.check_refused(run, "EINVAL", "namespaces.user", "the one that belljar is in already", '"new"')

    @callers("five", "user")
    def test_a_namespace_of_a_stronger_process_is_out_of_reach_and_the_remedy_says_how(self):
        run = self.sandbox("true", policy={"network": {"mode": "/proc/1/ns/net"}})
        self.check_refused(run, "EACCES", "/proc/1/ns/net", "network.mode", "CAP_SYS_PTRACE", "mount --bind")

    def bound(self, place, kind):
        """A file that the namespace is mounted on, for this launch only, and the `before` that does it."""
        file = self.make_file(f"bound-{kind}")
        return file, self.on_host(f"mount --bind {place / kind} {file}")

    @callers("five", "user")
    def test_a_namespace_of_roots_is_not_the_callers_to_join(self):
        file, before = self.bound(self.place("net"), "net")
        run = self.sandbox("true", policy={"network": {"mode": str(file)}}, before=before)
        owner = os.stat("/proc/self/ns/user").st_ino
        self.check_refused(run, "EPERM", f"it belongs to the user namespace {owner}, which is uid 0's",
                           f"join the net namespace {file}", "network.mode", "CAP_SYS_ADMIN")

    @callers("root")
    def test_a_file_that_it_is_mounted_on_is_as_good(self):
        place = self.place("net")
        file, before = self.bound(place, "net")
        run = self.inside(READ % (("net",),), policy={"network": {"mode": str(file)}}, before=before)
        self.check_exited(run)
        self.assertEqual(run.json(), {"net": os.readlink(place / "net")})

    @callers("user")
    def test_the_user_namespace_of_somebody_else_is_not_either(self):
        place = self.place("user", by_user=False, options=["--map-root-user"])
        file, before = self.bound(place, "user")
        run = self.sandbox("true", policy={"namespaces": {"user": str(file)}}, before=before)
        self.check_refused(run, "EPERM", "it belongs to uid 0", "namespaces.user")

    def test_another_kind_is_refused(self):
        place = self.users_place()
        run = self.sandbox("true", policy={"network": {"mode": str(place / "ipc")}})
        self.check_refused(run, f"{place}/ipc is a namespace, and not one of the kind net", "network.mode",
                           "/proc/PID/ns/net")

    def test_what_is_no_namespace_is_refused_and_not_opened(self):
        os.mkfifo(self.dir / "fifo")
        for name, text in (("fifo", "is no namespace"), ("nothing", "ENOENT")):
            run = self.sandbox("true", policy={"network": {"mode": str(self.dir / name)}}, timeout=20)
            self.check_refused(run, text, str(self.dir / name), "network.mode")

    def test_a_link_that_somebody_planted_is_not_followed(self):
        place = self.users_place()
        link = self.make_link("link", str(place / "net"), owner=self.uid)
        run = self.sandbox("true", policy={"network": {"mode": str(link)}})
        self.check_refused(run, "ELOOP", "link", "network.mode")
        directory = self.make_link("directory", str(place), owner=self.uid)
        run = self.sandbox("true", policy={"network": {"mode": str(directory / "net")}})
        self.check_refused(run, "ELOOP", "network.mode")

    def test_mount_and_pid_cannot_be_joined(self):
        for kind, why in (("mount", "would be mounted for all"), ("pid", "would go on")):
            run = self.sandbox("true", policy={"namespaces": {kind: "/proc/1/ns/pid"}})
            self.check_refused(run, f"a {kind} namespace cannot be joined", why, f"namespaces.{kind}")

    def test_what_would_change_a_user_namespace_that_is_joined_is_refused(self):
        for changes, text in (({"capabilities": ["CHOWN"]}, "capabilities would hold for everything"),
                              ({"identity": {"ids": 10}}, "what it maps already"),
                              ({"syscalls": {"base": "none"}}, "would bind all that is in the one that is joined")):
            run = self.sandbox("true", policy={"namespaces": {"user": "/proc/1/ns/user"}, **changes})
            self.check_refused(run, text, next(iter(changes)) if "syscalls" not in changes else "nested_user")


if __name__ == "__main__":
    main()
