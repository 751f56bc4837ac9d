"""Workspaces that are not the service's: opened once below the operator's roots, handed over without following anything."""

import ctypes
import os
import pathlib
import select
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from client import POOL_BASE, ServiceTest
from adversarial.case import rounds
from harness import as_root, back_ends, callers, main, while_doing
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
        os.link(outside, self.work / "hard")
        (self.work / "setuid").write_text("x")
        os.chmod(self.work / "setuid", 0o4755)
        os.mkfifo(self.work / "fifo")
        os.mknod(self.work / "device", 0o20600, os.makedev(1, 3))
        self.adopt()
        self.assertEqual(outside.stat().st_uid, 0)
        for name in ("hard", "setuid", "fifo", "device"):
            self.assertEqual((self.work / name).lstat().st_uid, 0, name)
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
        os.rename(self.work, outer / "inner")
        (outer / "theirs").write_text("")
        self.service.prepare("v", {}, uid=self.service.uid + 1)
        self.service.ask("adopt", workspace="v", path=str(outer), owner="chown")
        self.assertEqual((outer / "theirs").stat().st_uid, self.service.uid + 1)
        for path in ("inner", "inner/src/main.c"):
            self.assertEqual((outer / path).stat().st_uid, self.service.uid, path)
        self.service.ask("remove", workspace="w")
        self.service.ask("claim", workspace="v")
        self.assertEqual((outer / "inner/src/main.c").stat().st_uid, self.service.uid + 1, "when it has ended it is handed on")


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
