"""Workspaces that are not the service's: opened once below the operator's roots, handed over without following anything."""

import ctypes
import os
import pathlib
import select
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from client import POOL_BASE, ServiceTest, body_of, memfd
from fuse import Fuse
from adversarial.case import rounds
from harness import as_root, back_ends, callers, main, wait_for, while_doing
from test_launch import Session


class Existing(ServiceTest):
    def setUp(self):
        super().setUp()
        self.roots = pathlib.Path(self.make_directory("roots", mode=0o755))
        self.work = self.roots / "run-1"
        self.work.mkdir()
        (self.work / "src").mkdir()
        (self.work / "src/main.c").write_text("int main;")
        self.service = self.start_service("--workspace-root", self.roots)
        self.service.prepare("w", {})

    def adopt(self, path=None, owner="chown"):
        return self.service.ask("adopt", workspace="w", path=str(path or self.work), owner=owner)

    def refused(self, path, owner="chown", name="w"):
        return self.service.refusal("adopt", workspace=name, path=str(path), owner=owner)

    def run_session(self, script, policy="builtin:shell@1"):
        session = Session(self.service, ["sh", "-c", script], policy=policy, settings=["network.mode=none"])
        record = session.over()
        select.select([session.monitor], [], [])  # Then its uid and workspace are free.
        return record, session.read()


class HandedOver(Existing):
    @as_root
    @callers("root", "five")
    def test_a_session_works_in_it_at_its_own_path_and_home_is_its_own(self):
        self.adopt()
        record, out = self.run_session(f"pwd; cat src/main.c; echo; echo made > made.txt; echo $HOME; touch $HOME/x; ls -A {self.roots}")
        self.assertEqual(record["cause"], "exited", record)
        self.assertEqual(out.splitlines(), [str(self.work), "int main;", str(self.service.root / "w"), "run-1"])
        made = (self.work / "made.txt").stat()
        self.assertEqual((made.st_uid, made.st_mode & 0o777), (self.service.uid, 0o644), "others can read what it makes")
        self.assertEqual(self.service.read("made.txt"), b"made\n", "file work is in the directory, not in the home")
        self.service.ask("remove", workspace="w")
        self.assertTrue((self.work / "src/main.c").exists(), "it is its owner's")
        self.assertFalse((self.service.root / "w").exists())

    @as_root
    @callers("root", "five")
    def test_what_is_no_plain_file_of_its_own_stays_whose_it_was(self):
        outside = self.dir / "outside"
        outside.write_text("x")
        (self.work / "link").symlink_to(outside)
        (self.dir / "named twice").symlink_to(outside)
        os.link(self.dir / "named twice", self.work / "two", follow_symlinks=False)
        os.link(outside, self.work / "hard")
        (self.work / "setuid").write_text("x")
        os.chmod(self.work / "setuid", 0o4755)
        os.mkfifo(self.work / "fifo")
        os.mknod(self.work / "device", 0o20600, os.makedev(1, 3))
        self.adopt()
        self.assertEqual(outside.stat().st_uid, 0)
        for name in ("two", "hard", "setuid", "fifo", "device"):
            self.assertEqual((self.work / name).lstat().st_uid, 0, name)
        self.assertEqual((self.work / "link").lstat().st_uid, self.service.uid)
        for name in ("", "src", "src/main.c"):
            self.assertEqual((self.work / name).stat().st_uid, self.service.uid, name)

    @as_root
    @callers("root", "five")
    def test_no_mount_is_crossed_also_where_it_is_of_the_same_file_system(self):
        theirs = self.roots / "theirs"
        theirs.mkdir()
        (theirs / "file").write_text("x")
        (self.work / "mounted").mkdir()
        (self.work / "bound").write_text("")
        for source, target in ((theirs, self.work / "mounted"), (theirs / "file", self.work / "bound")):
            subprocess.run(["mount", "--bind", source, target], check=True)
            self.addCleanup(subprocess.run, ["umount", target], check=True)
        self.adopt()
        self.assertEqual((self.work / "src/main.c").stat().st_uid, self.service.uid)
        self.assertEqual([path.stat().st_uid for path in (theirs, theirs / "file")], [0, 0])

    @as_root
    @callers("root", "five")
    def test_what_is_added_later_is_claimed(self):
        self.adopt()
        (self.work / "later").mkdir()
        (self.work / "later/new.txt").write_text("new")
        self.assertEqual(self.service.ask("claim", workspace="w"), {"changed": 2, "left_out": 0})
        self.assertEqual((self.work / "later/new.txt").stat().st_uid, self.service.uid)

    @as_root
    @callers("root", "five")
    def test_a_tree_that_is_too_deep_stops_no_claim_and_no_later_session(self):
        (self.work / "/".join(["a"] * 300)).mkdir(parents=True)
        self.adopt()
        (self.work / "later").write_text("")
        self.assertEqual(self.service.ask("claim", workspace="w"), {"changed": 1, "left_out": 1})
        self.service.ask("remove", workspace="w")
        self.service.prepare("v", {}, uid=self.service.uid + 1)
        self.service.ask("adopt", workspace="v", path=str(self.work), owner="chown")
        for path in ("", "later", "src/main.c", "/".join(["a"] * 256)):
            self.assertEqual((self.work / path).stat().st_uid, self.service.uid + 1, path)

    @as_root
    @callers("root", "five")
    def test_of_one_that_kept_its_owner_nothing_is_claimed(self):
        os.chown(self.work, self.service.uid, self.service.uid)
        self.adopt(owner="keep")
        self.assertEqual(self.service.ask("claim", workspace="w"), {"changed": 0, "left_out": 0})
        self.assertEqual((self.work / "src/main.c").stat().st_uid, 0)

    @as_root
    @callers("root", "five")
    def test_two_never_work_in_one_nor_in_one_inside_the_other(self):
        self.adopt()
        self.service.prepare("v", {}, uid=self.service.uid + 1)
        for path in (self.work, self.work / "src", self.roots):
            self.assertEqual(self.refused(path, name="v")["code"], "exists", path)
        self.assertEqual(self.refused(self.work)["code"], "exists")
        self.service.ask("remove", workspace="w")
        self.service.ask("adopt", workspace="v", path=str(self.work), owner="chown")


class Exchanged(Existing):
    """The directory's name is another's while sessions start in it: what was opened counts."""

    def setUp(self):
        super().setUp()
        (self.work / "mine").write_text("")
        self.other = self.roots / "other"
        self.other.mkdir()
        (self.other / "theirs").write_text("")
        os.chown(self.other, self.service.uid, self.service.uid)
        (self.roots / "link").symlink_to(self.other)

    def swap(self, stop):
        libc, work = ctypes.CDLL(None), str(self.work).encode()
        names = [str(self.roots / name).encode() for name in ("other", "link")]
        while not stop.is_set():
            for name in names * 50:
                libc.renameat2(-100, work, -100, name, 2)  # RENAME_EXCHANGE
                libc.renameat2(-100, work, -100, name, 2)

    @as_root
    @callers("root", "five")
    def test_never_is_another_directory_inside(self):
        self.adopt()
        seen = while_doing(self.swap, lambda: [self.run_session("ls") for _ in range(rounds(20, 300))])
        for record, out in seen:
            if record["cause"] == "setup":
                self.assertEqual(out, "", record)
            else:
                self.assertEqual(out, "mine\nsrc\n", record)
        self.assertEqual(self.run_session("ls")[1], "mine\nsrc\n", "it is the same when nobody interferes")

    @as_root
    @callers("root")
    @back_ends("modern")
    def test_a_bind_by_name_alone_does_have_the_other_inside(self):
        """What the test above would miss if sessions went by the name."""
        policy = self.policy({"identity": {"uid": self.service.uid, "gid": self.service.uid},
                              "filesystem": {"workspace": {"path": str(self.work)}}})
        def until_seen():
            while self.sandbox("ls", policy=policy).out != "theirs\n":
                pass
        while_doing(self.swap, until_seen)


class Moved(Existing):
    @as_root
    @callers("root", "five")
    def test_a_live_sessions_directory_that_was_moved_into_anothers_stays_its_own(self):
        self.adopt()
        outer = self.roots / "outer"
        outer.mkdir()
        self.service.prepare("v", {}, uid=self.service.uid + 1)
        self.service.ask("adopt", workspace="v", path=str(outer), owner="chown")
        os.rename(self.work, outer / "inner")
        (outer / "theirs").write_text("")
        self.service.ask("claim", workspace="v")
        self.assertEqual((outer / "theirs").stat().st_uid, self.service.uid + 1)
        for path in ("inner", "inner/src/main.c"):
            self.assertEqual((outer / path).stat().st_uid, self.service.uid, path)
        self.service.ask("remove", workspace="w")
        self.service.ask("claim", workspace="v")
        self.assertEqual((outer / "inner/src/main.c").stat().st_uid, self.service.uid + 1, "when it has ended it is handed on")


class Overlapping(Existing):
    """Where a directory is counts, not what it is called."""

    def setUp(self):
        super().setUp()
        self.alias = self.dir / "alias"
        self.alias.symlink_to(self.roots)

    def refused_beside_a_live_one(self, path, *options, before=lambda: None):
        """`w` works in `work`; then `v` may not have `path`, and may when `w` has ended."""
        service = self.start_service("--workspace-root", self.roots, "--workspace-root", self.alias, *options,
                                     root=self.dir / "others", base=POOL_BASE + 8)
        uid = POOL_BASE + 8
        service.prepare("w", {}, uid=uid)
        service.prepare("v", {}, uid=uid + 1)
        service.ask("adopt", workspace="w", path=str(self.work), owner="chown")
        before()
        said = service.refusal("adopt", workspace="v", path=str(path), owner="chown")
        self.assertEqual(said["code"], "exists", said)
        self.assertNotIn(uid + 1, [found.lstat().st_uid for found in self.roots.rglob("*")])
        service.ask("remove", workspace="w")
        service.ask("adopt", workspace="v", path=str(path), owner="chown")

    def bind(self, source, at):
        at.mkdir()
        subprocess.run(["mount", "--bind", source, at], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", at], check=True)

    @as_root
    @callers("root", "five")
    def test_what_is_in_one_that_was_renamed(self):
        self.refused_beside_a_live_one(self.roots / "moved/src", before=lambda: self.work.rename(self.roots / "moved"))

    @as_root
    @callers("root", "five")
    def test_what_is_around_one_that_was_moved(self):
        def move():
            (self.roots / "outer").mkdir()
            self.work.rename(self.roots / "outer/inner")
        self.refused_beside_a_live_one(self.roots / "outer", before=move)

    @as_root
    @callers("root", "five")
    def test_what_is_in_one_by_another_root_that_is_a_link(self):
        self.refused_beside_a_live_one(self.alias / "run-1/src")

    @as_root
    @callers("root", "five")
    def test_what_is_in_one_by_a_bind_mount(self):
        self.bind(self.work, self.roots / "bound")
        self.refused_beside_a_live_one(self.roots / "bound/src")

    @as_root
    @callers("root", "five")
    def test_a_bind_mount_of_something_in_one(self):
        self.bind(self.work / "src", self.roots / "bound")
        self.refused_beside_a_live_one(self.roots / "bound")

    @as_root
    @callers("root", "five")
    def test_what_is_around_one_by_a_bind_mount(self):
        self.bind(self.roots, self.dir / "outside")
        self.refused_beside_a_live_one(self.dir / "outside", "--workspace-root", self.dir / "outside")

    @as_root
    @callers("root", "five")
    def test_one_beside_a_live_one_with_a_longer_name_is_had(self):
        self.adopt()
        (self.roots / "run-10").mkdir()
        self.service.prepare("v", {}, uid=self.service.uid + 1)
        self.service.ask("adopt", workspace="v", path=str(self.roots / "run-10"), owner="chown")

    @as_root
    @callers("root", "five")
    def test_never_another_sessions_home_by_a_link_or_a_bind_mount(self):
        whole = self.dir / "whole"
        whole.symlink_to(self.dir)
        sessions = self.dir / "homes"
        service = self.start_service("--workspace-root", whole, "--workspace-root", self.roots, root=sessions, base=POOL_BASE + 8)
        uid = POOL_BASE + 8
        service.prepare("w", {"secret": b"of w"}, uid=uid)
        service.prepare("v", {}, uid=uid + 1)
        self.bind(sessions, self.roots / "bound")
        self.bind(sessions / "w", self.roots / "home")
        for path in (whole / "homes/w", whole / "homes", self.roots / "bound/w", self.roots / "home", whole):
            said = service.refusal("adopt", workspace="v", path=str(path), owner="chown")
            self.assertIn("workspaces of other sessions", said["message"], path)
        self.assertEqual((sessions / "w/secret").stat().st_uid, uid)
        self.assertEqual(service.list("v")[0], {})


class UnderWay(Existing):
    """Until a hand-over has ended nobody else gets what it works on."""

    def occupy(self, name="w"):
        """More files are written into the workspace than helpers may be at work for it; `release` lets them end."""
        pipes = []
        for i in range(32):
            reading, writing = os.pipe()
            self.service.post("write", [reading], workspace=name, path=f"written-{i}", mode="0600", parents=False)
            os.close(reading)
            pipes.append(writing)
        return lambda: [os.close(pipe) for pipe in pipes]

    def assert_busy(self, do, fds=(), **members):
        self.assertEqual(self.service.refusal(do, fds, workspace="w", **members)["code"], "busy", do)

    def launch_is_busy(self):
        null = os.open("/dev/null", os.O_RDWR)
        self.addCleanup(os.close, null)
        self.assert_busy("launch", [null] * 3, session="s", uid=self.service.uid, policy="builtin:shell@1", settings=[],
                         variables={}, environment={}, argv=["true"])

    @as_root
    @callers("root", "five")
    def test_while_a_directory_is_adopted_its_session_is_not_removed_launched_or_given_another(self):
        other = self.roots / "other"
        other.mkdir()
        release = self.occupy()
        adopting = self.service.post("adopt", workspace="w", path=str(self.work), owner="chown")
        self.assert_busy("remove")
        self.assert_busy("adopt", path=str(other), owner="chown")
        self.launch_is_busy()
        body = memfd(body_of({}))
        self.addCleanup(os.close, body)
        self.assert_busy("prepare", [body], uid=self.service.uid)
        release()
        self.assertEqual(self.service.answer(adopting)[0]["ok"], {"path": str(self.work)})
        self.service.ask("remove", workspace="w")
        self.assertTrue(self.work.exists())

    @as_root
    @callers("root", "five")
    def test_while_it_is_claimed_its_uid_goes_to_no_other_session(self):
        self.adopt()
        (self.work / "later").write_text("")
        release = self.occupy()
        claiming = self.service.post("claim", workspace="w")
        self.assert_busy("remove")
        self.service.prepare("v", {}, uid=self.service.uid + 1)
        self.assertEqual(self.refused(self.work, name="v")["code"], "exists")
        release()
        self.assertIn("ok", self.service.answer(claiming)[0])
        self.assertEqual((self.work / "later").stat().st_uid, self.service.uid)
        self.service.ask("remove", workspace="w")
        self.service.ask("adopt", workspace="v", path=str(self.work), owner="chown")
        self.assertEqual((self.work / "later").stat().st_uid, self.service.uid + 1)

    @as_root
    @callers("root", "five")
    def test_what_another_has_adopted_since_it_was_asked_for_is_left_alone(self):
        self.adopt()
        theirs = self.roots / "theirs"
        theirs.mkdir()
        self.service.prepare("v", {}, uid=self.service.uid + 1)
        release = self.occupy()
        claiming = self.service.post("claim", workspace="w")
        (theirs / "secret").write_text("v's")
        self.service.ask("adopt", workspace="v", path=str(theirs), owner="chown")
        theirs.rename(self.work / "in")
        release()
        self.assertIn("ok", self.service.answer(claiming)[0])
        for path in ("in", "in/secret"):
            self.assertEqual((self.work / path).stat().st_uid, self.service.uid + 1, path)


class NoAnswer(Existing):
    """A file system below a root that stops answering is its own session's trouble."""

    def setUp(self):
        super().setUp()
        self.theirs = self.roots / "theirs"
        self.theirs.mkdir()
        self.fuse = Fuse(self, self.theirs, self.service.uid)
        self.service.prepare("v", {"file": b"v's"}, uid=self.service.uid + 1)

    @as_root
    @callers("root")
    def test_others_are_served_while_one_is_opened_that_never_answers(self):
        adopting = self.service.post("adopt", workspace="w", path=str(self.theirs / "never"), owner="keep")
        self.service.ask("hello")
        self.assertEqual(self.service.read("file", name="v"), b"v's")
        self.service.ask("adopt", workspace="v", path=str(self.work), owner="chown")
        wait_for(lambda: self.fuse.held, what="the question that is not answered")
        self.fuse.answer_all()
        self.assertEqual(self.service.answer(adopting)[0]["error"]["code"], "not_found")
        self.adopt(self.theirs / "inner", owner="keep")

    @as_root
    @callers("root")
    def test_others_are_served_and_told_of_while_one_has_fallen_silent(self):
        self.adopt(self.theirs / "inner", owner="keep")
        self.service.ask("adopt", workspace="v", path=str(self.work), owner="chown")
        self.fuse.silent = True
        self.assertEqual(self.service.ask("gone"), {"workspaces": []})
        self.service.ask("hello")
        subprocess.run(["rm", "-r", self.work], check=True)
        self.assertEqual(self.service.ask("gone"), {"workspaces": ["v"]})
        self.fuse.answer_all()
        self.assertEqual(self.service.ask("gone"), {"workspaces": ["v"]})

    @as_root
    @callers("root")
    def test_one_session_never_holds_the_places_of_all_helpers(self):
        self.adopt(self.theirs / "inner", owner="keep")
        self.fuse.silent = True
        waiting = [self.service.post("open", workspace="w", path=f"file-{i}") for i in range(40)]
        self.assertEqual(self.service.read("file", name="v"), b"v's")
        self.fuse.answer_all()
        for number in waiting:
            self.assertIn("error", self.service.answer(number)[0])

    @as_root
    @callers("root")
    def test_helpers_that_cannot_be_ended_give_their_places_back(self):
        places = ["w", "v", "x", "y"]
        for i, name in enumerate(places):
            self.fuse.uid = self.service.uid + i
            if i > 1:
                self.service.prepare(name, {}, uid=self.fuse.uid)
            self.service.ask("adopt", workspace=name, path=str(self.theirs / name), owner="keep")
        self.fuse.silent = True
        for name in places:
            for i in range(8):
                self.service.post("open", workspace=name, path=f"file-{i}")
        self.assertEqual(self.service.ask("gone"), {"workspaces": []})

    @as_root
    @callers("root")
    def test_the_service_ends_although_a_helper_cannot(self):
        self.adopt(self.theirs / "inner", owner="keep")
        self.fuse.silent = True
        self.service.post("open", workspace="w", path="file")
        while not self.fuse.held:
            self.service.ask("hello")
        self.service.socket.close()
        self.assertEqual(self.service.process.wait(60), 0, self.service.said())


class Refused(Existing):
    def test_only_what_lies_below_an_operators_root(self):
        for path in ("/etc", str(self.dir), f"{self.roots}/../outside", "relative", f"{self.roots}x", "/", "", str(self.service.root)):
            self.assertIn(self.refused(path, "keep")["code"], ("refused", "invalid"), path)

    def test_no_link_on_the_way_or_at_the_end(self):
        (self.roots / "link").symlink_to(self.work)
        (self.roots / "out").symlink_to("/etc")
        for name in ("link", "out", "link/src"):
            self.assertIn(self.refused(self.roots / name, "keep")["code"], ("refused", "system", "not_found", "denied"), name)

    def test_no_file_and_nothing_that_is_not_there(self):
        (self.roots / "file").write_text("")
        self.refused(self.roots / "file")
        self.assertEqual(self.refused(self.roots / "absent")["code"], "not_found")

    @as_root
    @callers("root", "five")
    def test_to_keep_an_owner_it_has_to_be_the_sessions(self):
        self.assertIn("belongs to uid 0", self.refused(self.work, "keep")["message"])
        self.assertEqual((self.work / "src").stat().st_uid, 0)
        os.chown(self.work, self.service.uid, self.service.uid)
        self.adopt(owner="keep")

    def test_without_a_root_of_the_operators_there_is_none(self):
        service = self.start_service(root=self.dir / "other", base=POOL_BASE + 8)
        service.prepare("w", {}, uid=POOL_BASE + 8 if self.privileged else None)
        self.assertIn("--workspace-root", service.refusal("adopt", workspace="w", path=str(self.work), owner="keep")["message"])


class Gone(Existing):
    @as_root
    @callers("root", "five")
    def test_one_that_is_removed_is_told(self):
        self.adopt()
        self.assertEqual(self.service.ask("gone"), {"workspaces": []})
        os.rename(self.work, self.roots / "elsewhere")
        self.assertEqual(self.service.ask("gone"), {"workspaces": []})
        for path in sorted((self.roots / "elsewhere").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (self.roots / "elsewhere").rmdir()
        self.assertEqual(self.service.ask("gone"), {"workspaces": ["w"]})


if __name__ == "__main__":
    main()
