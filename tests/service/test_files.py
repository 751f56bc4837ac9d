"""Workspaces and their files: made, read and removed under the session's own uid, whatever it has put there."""

import base64
import ctypes
import json
import os
import pathlib
import shutil
import socket
import stat
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from client import POOL_BASE, POOL_SIZE, ServiceTest, body_of, memfd
from harness import as_root, callers, main, once, wait_for


class Prepare(ServiceTest):
    def test_a_workspace_is_the_sessions_alone(self):
        service = self.start_service()
        path = service.prepare("w-1_A", {"agent.py": b"print(1)\n", "data/deep/x": (b"\0\xff", "0640"), "empty": None})
        self.assertEqual(path, service.root / "w-1_A")
        about = path.stat()
        self.assertEqual((about.st_uid, about.st_mode & 0o7777), (service.uid, 0o700))
        self.assertEqual((path / "agent.py").read_bytes(), b"print(1)\n")
        self.assertEqual((path / "data/deep/x").read_bytes(), b"\0\xff")
        modes = {str(entry.relative_to(path)): entry.stat().st_mode & 0o7777 for entry in path.rglob("*")}
        self.assertEqual(modes, {"agent.py": 0o600, "data": 0o700, "data/deep": 0o700, "data/deep/x": 0o640, "empty": 0o700})
        self.assertEqual({entry.stat().st_uid for entry in path.rglob("*")}, {service.uid})

    def test_removing_it_leaves_nothing_and_may_be_said_twice(self):
        service = self.start_service()
        path = service.prepare("w", {"a/b": b"x"})
        self.assertEqual(service.ask("remove", workspace="w"), {"left": 0})
        self.assertFalse(path.exists())
        self.assertEqual(service.ask("remove", workspace="w"), {"left": 0})
        service.prepare("w")

    def test_names_of_workspaces_are_words(self):
        service = self.start_service()
        for name in ("", ".", "..", "a/b", "a b", "ä", "a.b", "x" * 65, "a\n", "/w"):
            with self.subTest(name):
                body = memfd(body_of({}))
                self.check_code(service.refusal("prepare", [body], workspace=name, uid=service.uid), "invalid", "workspace")
                os.close(body)
        service.prepare("x" * 64)

    def test_uids_outside_the_pool_get_none(self):
        service = self.start_service()
        body = memfd(body_of({}))
        outside = (0, 1, POOL_BASE - 1, POOL_BASE + POOL_SIZE, 65534, 4294967294) if self.privileged else (0, self.uid + 1)
        for uid in outside:
            with self.subTest(uid):
                self.check_code(service.refusal("prepare", [body], workspace="w", uid=uid), "not_in_pool", str(uid))
        for uid in (-1, 4294967295, 1 << 64, 1.5, "0", None, True):
            with self.subTest(uid):
                self.check_code(service.refusal("prepare", [body], workspace="w", uid=uid), "invalid")
        os.close(body)
        self.assertEqual(os.listdir(service.root), [])
        service.prepare("w")

    @callers("root", "five")
    @as_root
    def test_a_uid_has_one_workspace_and_a_name_one_session(self):
        service = self.start_service()
        service.prepare("one")
        body = memfd(body_of({}))
        self.check_code(service.refusal("prepare", [body], workspace="two", uid=POOL_BASE), "busy", "one")
        self.check_code(service.refusal("prepare", [body], workspace="one", uid=POOL_BASE), "exists")
        self.check_code(service.refusal("prepare", [body], workspace="one", uid=POOL_BASE + 1), "exists")
        os.close(body)
        service.prepare("two", uid=POOL_BASE + 1)
        service.ask("remove", workspace="one")
        service.prepare("three")

    def test_a_body_that_could_change_is_not_read(self):
        service = self.start_service()
        content = body_of({"a": b"x"})
        plain = self.make_file("plain", content)
        bodies = {"unsealed": memfd(content, 0), "writable": memfd(content, 1 | 2 | 4), "can shrink": memfd(content, 1 | 4 | 8),
                  "can grow": memfd(content, 1 | 2 | 8), "seals can be added": memfd(content, 2 | 4 | 8),
                  "a file": os.open(plain, os.O_RDONLY), "a pipe": os.pipe()[0], "a directory": os.open("/", os.O_RDONLY),
                  "a path": os.open(plain, os.O_PATH), "a socket": socket.socket().detach()}
        for name, fd in bodies.items():
            with self.subTest(name):
                self.check_code(service.refusal("prepare", [fd], workspace="w", uid=service.uid), "invalid", "sealed")
            os.close(fd)
        self.assertEqual(os.listdir(service.root), [])
        service.prepare("w", {"a": b"x"})

    def test_of_a_body_that_is_wrong_nothing_is_left(self):
        service = self.start_service()
        entry = {"path": "a", "size": 1}
        bodies = {
            "no header": b"", "no line": b"[]", "no array": b"{}\n", "no json": b"[\n", "too short": json.dumps([entry]).encode() + b"\n",
            "too long": json.dumps([entry]).encode() + b"\nxy", "huge size": json.dumps([{"path": "a", "size": 2**64 - 1}, entry]).encode() + b"\nx",
            "unknown member": json.dumps([{**entry, "owner": 0}]).encode() + b"\nx", "both": json.dumps([{**entry, "directory": True}]).encode() + b"\nx",
            "neither": json.dumps([{"path": "a"}]).encode() + b"\n", "setuid": json.dumps([{**entry, "mode": "4755"}]).encode() + b"\nx",
            "mode as a number": json.dumps([{**entry, "mode": 493}]).encode() + b"\nx", "nul": b'[{"path":"a\\u0000b","size":0}]\n',
            "twice": body_of({"a": b"x"})[:-2].replace(b"]", b"," + json.dumps(entry).encode() + b"]") + b"\nxx",
        }
        for path in ("", "/etc/x", "../x", "a/../../x", "a//b", "./a", "a/", "a/.", "..", "x" * 256, "a/" * 2100 + "a"):
            bodies[f"path {path[:20]}"] = body_of({path: b"x"})
        bodies["a file as a parent"] = body_of({"a": b"x", "a/b": b"y"})
        bodies["a file as a far parent"] = body_of({"a/b/c/d": b"x", "a/b": b"y"})
        bodies["a directory that is a file"] = body_of({"a": None})[:-2] + b',{"path":"a","size":0}]\n'
        for name, content in bodies.items():
            with self.subTest(name):
                fd = memfd(content)
                self.check_code(service.refusal("prepare", [fd], workspace="w", uid=service.uid), "invalid")
                os.close(fd)
                self.assertEqual(os.listdir(service.root), [])
        service.prepare("w", {"a": b"x"})

    @once  # Making as many files takes its time.
    def test_ten_thousand_files_and_not_one_more(self):
        service = self.start_service()
        many = {f"d{i % 100}/f{i}": b"" for i in range(10_000)}
        fd = memfd(body_of({**many, "more": b""}))
        self.check_code(service.refusal("prepare", [fd], workspace="w", uid=service.uid), "too_large")
        os.close(fd)
        path = service.prepare("w", many)
        self.assertEqual(sum(len(files) for _, _, files in os.walk(path)), 10_000)


class Files(ServiceTest):
    def setUp(self):
        super().setUp()
        self.service = self.start_service()
        self.path = self.service.prepare("w", {"a.txt": b"hello", "dir/b.txt": b"world", "dir/sub/c": b"!"})

    def refused(self, do, path, code, fds=(), **more):
        members = {"open": {}, "write": {"mode": "0600", "parents": False}, "delete": {"recursive": False},
                   "list": {"depth": 4, "content": 0, "total": 0, "skip": []}}[do]
        self.check_code(self.service.refusal(do, fds, workspace="w", path=path, **{**members, **more}), code)

    def write_refused(self, path, code, **more):
        source = memfd(b"x", 0)
        self.refused("write", path, code, [source], **more)
        os.close(source)

    def test_a_list_is_a_walk_from_the_top(self):
        entries, truncated = self.service.list(content=100, total=100)
        self.assertEqual(list(entries), ["a.txt", "dir", "dir/b.txt", "dir/sub", "dir/sub/c"])
        self.assertFalse(truncated)
        self.assertEqual(base64.b64decode(entries["dir/b.txt"]["content_base64"]), b"world")
        self.assertEqual((entries["a.txt"]["type"], entries["a.txt"]["size"]), ("file", 5))
        self.assertEqual(entries["dir"]["type"], "directory")
        self.assertEqual(list(self.service.list(depth=1)[0]), ["a.txt", "dir"])
        self.assertEqual(list(self.service.list(path="dir")[0]), ["dir/b.txt", "dir/sub", "dir/sub/c"])
        self.assertEqual(list(self.service.list(skip=["sub"])[0]), ["a.txt", "dir", "dir/b.txt", "dir/sub"])

    def test_contents_stay_within_what_was_asked_for(self):
        entries, _ = self.service.list(content=4, total=100)
        self.assertTrue(entries["a.txt"]["too_large"])
        self.assertIn("content_base64", entries["dir/sub/c"])
        entries, _ = self.service.list(content=100, total=7)
        self.assertIn("content_base64", entries["a.txt"])
        self.assertTrue(entries["dir/b.txt"]["too_large"])

    def test_reading_writing_and_deleting(self):
        self.assertEqual(self.service.read("dir/b.txt"), b"world")
        self.assertEqual(self.service.write("a.txt", b"new", mode="0755"), {"size": 3, "created": False})
        self.assertEqual(self.service.write("x/y/z", b"", parents=True), {"size": 0, "created": True})
        self.assertEqual((self.path / "a.txt").read_bytes(), b"new")
        self.assertEqual((self.path / "a.txt").stat().st_mode & 0o7777, 0o755)
        self.assertEqual((self.path / "x/y/z").stat().st_uid, self.service.uid)
        self.assertEqual(self.service.ask("delete", workspace="w", path="x", recursive=True), {})
        self.assertFalse((self.path / "x").exists())
        self.refused("delete", "dir", "refused")
        self.refused("open", "x", "not_found")
        self.write_refused("x/y", "not_found")
        self.assertEqual(sorted(os.listdir(self.path)), ["a.txt", "dir"])

    def test_a_source_may_be_a_pipe(self):
        read, write = os.pipe()
        number = self.service.post("write", [read], workspace="w", path="p", mode="0600", parents=False)
        os.close(read)
        for _ in range(3):
            os.write(write, b"x" * 1000)
        os.close(write)
        self.assertEqual(self.service.answer(number)[0]["ok"]["size"], 3000)

    def test_a_source_that_ends_without_its_mark_was_broken_off_and_changes_nothing(self):
        self.assertEqual(self.service.write("a.txt", b"one.two..", end="mark"), {"size": 8, "created": False})
        self.assertEqual(self.service.read("a.txt"), b"one.two.")
        for broken in (b"", b"half", b".half"):
            source = memfd(broken, 0)
            os.lseek(source, 0, os.SEEK_SET)
            self.refused("write", "a.txt", "invalid", [source], end="mark")
            os.close(source)
        self.assertEqual(self.service.read("a.txt"), b"one.two.")
        self.assertEqual(self.service.write("a.txt", b".", end="mark")["size"], 0)
        self.write_refused("a.txt", "invalid", end="other")

    def test_if_match_names_the_file_that_is_meant(self):
        ok, fds = self.service.ask("open", workspace="w", path="a.txt")
        os.close(fds[0])
        about = (self.path / "a.txt").stat()
        self.assertEqual(ok["etag"], f"{about.st_ino}-5-{about.st_mtime_ns}")
        self.service.write("a.txt", b"one", if_match=ok["etag"])
        self.write_refused("a.txt", "changed", if_match=ok["etag"])
        self.write_refused("absent", "changed", if_match=ok["etag"])
        self.assertEqual((self.path / "a.txt").read_bytes(), b"one")

    def etag(self, path):
        ok, fds = self.service.ask("open", workspace="w", path=path)
        os.close(fds[0])
        return ok["etag"]

    def test_what_if_match_does_not_name_is_not_deleted(self):
        stale = self.etag("a.txt")
        self.service.write("a.txt", b"newer")
        for path in ("a.txt", "absent"):
            self.refused("delete", path, "changed", if_match=stale)
        self.as_session(lambda: os.symlink("a.txt", self.path / "link"))
        for path in ("dir", "link"):
            for recursive in (False, True):
                self.refused("delete", path, "refused", if_match=stale, recursive=recursive)
        etag = self.etag("a.txt")
        self.as_session(lambda: os.link(self.path / "a.txt", self.path / "second"))
        self.refused("delete", "a.txt", "refused", if_match=etag)
        self.as_session(lambda: os.unlink(self.path / "second"))
        self.assertEqual(sorted(os.listdir(self.path)), ["a.txt", "dir", "link"])
        self.assertEqual(self.service.ask("delete", workspace="w", path="a.txt", recursive=False, if_match=etag), {})
        self.assertEqual(sorted(os.listdir(self.path)), ["dir", "link"])

    def test_a_file_that_is_swapped_in_while_another_is_deleted_stays(self):
        def inodes():
            return {entry.inode() for entry in os.scandir(self.path)}
        self.service.write("keep", b"to stay")
        kept, renameat2 = (self.path / "keep").stat().st_ino, ctypes.CDLL(None).renameat2

        def exchange():
            for _ in range(1000):
                renameat2(-100, b"a.txt", -100, b"keep", 2)
        deleted = refused = 0
        with self.service.while_session(self.path, exchange):
            for _ in range(3000):
                message, fds = self.service.answer(self.service.post("open", workspace="w", path="a.txt"))
                for fd in fds:
                    os.close(fd)
                if "ok" not in message or message["ok"]["inode"] == kept:
                    continue
                gone, _ = self.service.answer(self.service.post(
                    "delete", workspace="w", path="a.txt", recursive=False, if_match=message["ok"]["etag"]))
                self.assertIn(kept, inodes())
                if "ok" not in gone:
                    self.assertEqual(gone["error"]["code"], "changed", gone)
                    self.assertIn(message["ok"]["inode"], inodes())
                    refused += 1
                else:
                    self.assertNotIn(message["ok"]["inode"], inodes())
                    deleted += 1
                    missing = "keep" if (self.path / "a.txt").exists() else "a.txt"
                    self.service.write(missing, b"to go")
                if deleted >= 20 and refused >= 20:
                    break
        self.assertGreater(min(deleted, refused), 0)
        self.assertEqual(len(os.listdir(self.path)), 3)

    def test_no_path_leads_out(self):
        for path in ("../w2/x", "/etc/passwd", "..", ".", "dir/..", "dir/../../x", "dir//b.txt", "dir/", "./a.txt", "a\0b",
                     "x" * 256, "a/" * 2048 + "a"):
            with self.subTest(path):
                for do in ("open", "delete"):
                    self.refused(do, path, "invalid")
                self.write_refused(path, "invalid")
                self.refused("list", path, "invalid")
        self.assertEqual(self.service.read("a.txt"), b"hello")

    def test_names_are_bytes(self):
        names = [b"new\nline", b"\xff\xfe", "ü€".encode(), b"x" * 255, b"-rf *", b"\x1b[31m"]
        self.as_session(lambda: [os.close(os.open(os.fsencode(self.path) + b"/" + name, os.O_CREAT | os.O_WRONLY)) for name in names] and None)
        entries, _ = self.service.list(depth=1)
        found = {base64.b64decode(entry["path_base64"]) if "path_base64" in entry else path.encode()
                 for path, entry in entries.items()}
        self.assertLessEqual(set(names), found)
        for name in names:
            encoded = base64.b64encode(name).decode()
            _, fds = self.service.ask("open", workspace="w", path_base64=encoded)
            os.close(fds[0])
            self.service.ask("delete", workspace="w", path_base64=encoded, recursive=False)
        self.assertEqual(sorted(os.listdir(self.path)), ["a.txt", "dir"])
        self.refused("open", "x", "invalid", path_base64="YQ==")
        for wrong in ("YQ", "Y===", "YR==", "!!!!", base64.b64encode(b"../x").decode()):
            self.check_code(self.service.refusal("open", workspace="w", path_base64=wrong), "invalid")

    def as_session(self, function):
        return self.service.as_session(function)

    def test_links_are_never_followed(self):
        secret = self.make_directory("secret")
        self.make_file("secret/key", "secret", mode=0o644)

        def plant():
            os.symlink(secret / "key", self.path / "file")
            os.symlink(secret, self.path / "there")
            os.symlink("dir", self.path / "inner")
            os.symlink("a.txt", self.path / "alias")
            os.symlink("/proc/self/fd/3", self.path / "magic")
        self.as_session(plant)
        for path in ("file", "there", "there/key", "inner/b.txt", "alias", "magic"):
            with self.subTest(path):
                self.refused("open", path, "refused")
        for path in ("there", "inner", "there/x"):
            self.refused("list", path, "refused")
        for path in ("file", "alias", "magic", "there"):
            self.write_refused(path, "refused")
        for path in ("there/new", "inner/new", "there/a/b"):
            self.write_refused(path, "refused", parents=True)
            self.write_refused(path, "refused")
        self.refused("delete", "there/key", "refused", recursive=True)
        entries, _ = self.service.list(content=100, total=1000)
        self.assertEqual({entries[name]["type"] for name in ("file", "there", "inner", "alias", "magic")}, {"other"})
        self.assertNotIn("there/key", entries)
        # A link itself is the session's to lose.
        for path in ("file", "there", "inner", "alias", "magic"):
            self.service.ask("delete", workspace="w", path=path, recursive=True)
        self.assertEqual(os.listdir(secret), ["key"])
        self.assertEqual((secret / "key").read_text(), "secret")
        self.assertTrue((self.path / "dir/b.txt").exists())

    def test_what_is_no_plain_file_is_not_touched(self):
        def plant():
            os.mkfifo(self.path / "fifo", 0o666)
            socket.socket(socket.AF_UNIX).bind(str(self.path / "socket"))
            os.link(self.path / "a.txt", self.path / "hard")
        self.as_session(plant)
        for path in ("fifo", "socket", "hard", "a.txt", "dir"):
            with self.subTest(path):
                self.refused("open", path, "refused")
                self.write_refused(path, "refused")
        entries, _ = self.service.list(content=100, total=1000)
        for path in ("fifo", "socket", "hard"):
            self.assertEqual(entries[path]["type"], "other")
            self.assertNotIn("content_base64", entries[path])
        self.assertEqual(self.service.ask("remove", workspace="w"), {"left": 0})

    @as_root
    @callers("root", "five")
    def test_files_of_others_are_not_touched(self):
        foreign = self.path / "foreign"
        foreign.write_text("root's")
        foreign.chmod(0o666)
        self.refused("open", "foreign", "refused")
        self.write_refused("foreign", "refused")
        device = self.path / "null"
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        self.refused("open", "null", "refused")
        self.write_refused("null", "refused")
        foreign.unlink()
        device.unlink()
        # As the session could make it where fs.protected_hardlinks is off.
        secret = self.make_file("secret", "root's", mode=0o666)
        linked = self.path / "linked"
        os.link(secret, linked)
        self.refused("open", "linked", "refused")
        self.write_refused("linked", "refused")
        self.service.ask("delete", workspace="w", path="linked", recursive=False)
        about = secret.stat()
        self.assertEqual((secret.read_text(), about.st_uid, stat.S_IMODE(about.st_mode)), ("root's", 0, 0o666))

    @as_root
    @callers("root", "five")
    def test_the_sessions_own_permissions_hold(self):
        self.as_session(lambda: os.chmod(self.path / "a.txt", 0) or os.chmod(self.path / "dir", 0o500))
        self.refused("open", "a.txt", "denied")
        self.write_refused("dir/new", "denied")
        self.refused("delete", "dir/b.txt", "denied")
        self.assertEqual(self.service.read("dir/b.txt"), b"world")

    def test_a_tree_that_resists_is_removed(self):
        def build():
            os.chdir(self.path)
            for _ in range(1500):  # Far longer than any path may be.
                os.mkdir("d" * 100)
                os.chdir("d" * 100)
                open("file", "w").close()
            os.chdir(self.path)
            os.mkdir("locked")
            open("locked/file", "w").close()
            os.chmod("locked", 0)
            os.mkdir("locked2")
            os.mkdir("locked2/inner")
            os.chmod("locked2/inner", 0o111)
            os.chmod("locked2", 0o500)
            os.chmod(".", 0o300)
        self.as_session(build)
        self.assertEqual(self.service.ask("remove", workspace="w"), {"left": 0})
        self.assertFalse(self.path.exists())

    def test_of_a_deep_tree_as_much_is_deleted(self):
        def build():
            os.chdir(self.path / "dir")
            for _ in range(300):
                os.mkdir("e" * 200)
                os.chdir("e" * 200)
        self.as_session(build)
        self.service.ask("delete", workspace="w", path="dir", recursive=True)
        self.assertEqual(os.listdir(self.path), ["a.txt"])

    @once
    def test_more_than_ten_thousand_entries_are_said_to_be_more(self):
        self.as_session(lambda: [os.mkdir(self.path / "many")] + [open(self.path / f"many/{i}", "w").close() for i in range(10_050)] and None)
        entries, truncated = self.service.list()
        self.assertEqual(len(entries), 10_000)
        self.assertTrue(truncated)
        self.assertEqual(self.service.ask("remove", workspace="w"), {"left": 0})

    def test_a_failed_write_leaves_nothing(self):
        for name, source in {"a directory": os.open("/", os.O_RDONLY), "write only": os.open("/dev/null", os.O_WRONLY)}.items():
            with self.subTest(name):
                self.service.refusal("write", [source], workspace="w", path="new", mode="0600", parents=False)
            os.close(source)
        self.write_refused("new", "invalid", mode="4755")
        self.assertEqual(sorted(os.listdir(self.path)), ["a.txt", "dir"])

    def swapping(self, secret):
        """Meanwhile the session lets "dir" be its directory and a link to `secret` by turns."""
        def swap():
            try:
                for name, other in (("dir", "real"), ("link", "dir"), ("dir", "link"), ("real", "dir")):
                    os.rename(name, other)
            except OSError:  # It was deleted.
                make_swappable(secret)
        self.service.as_session(lambda: os.symlink(secret, self.path / "link"))
        return self.service.while_session(self.path, swap)

    def wait_for_swap(self, name):
        """The control: whoever goes by the path alone comes to the other file."""
        def seen():
            try:
                return (self.path / "dir" / name).read_bytes() == b"secret"
            except OSError:
                return False
        wait_for(seen, 20, "the other file")

    def test_swaps_while_it_works_gain_nothing(self):
        secret = self.make_directory("secret")
        self.make_file("secret/b.txt", "secret", mode=0o666)
        seen = set()
        with self.swapping(secret):
            self.wait_for_swap("b.txt")
            for _ in range(150):
                message, fds = self.service.answer(self.service.post("open", workspace="w", path="dir/b.txt"))
                for fd in fds:
                    seen.add(os.read(fd, 100))
                    os.close(fd)
                source = memfd(b"world", 0)
                os.lseek(source, 0, os.SEEK_SET)
                self.service.answer(self.service.post("write", [source], workspace="w", path="dir/b.txt", mode="0600", parents=False))
                os.close(source)
        self.assertLessEqual(seen, {b"world"})
        self.assertEqual((secret / "b.txt").read_text(), "secret")
        self.assertEqual(os.listdir(secret), ["b.txt"])

    def test_swaps_while_it_deletes_lead_nowhere(self):
        secret = self.make_directory("secret", owner=self.service.uid, mode=0o777)
        for number in range(50):
            self.make_file(f"secret/{number}", "secret", owner=self.service.uid)
        with self.swapping(secret):
            self.wait_for_swap("0")
            for _ in range(150):
                self.service.answer(self.service.post("delete", workspace="w", path="dir", recursive=True))
                self.service.answer(self.service.post("delete", workspace="w", path="dir/0", recursive=False))
        self.assertEqual(len(os.listdir(secret)), 50)
        self.assertEqual(self.service.ask("remove", workspace="w"), {"left": 0})
        self.assertEqual(len(os.listdir(secret)), 50)


def make_swappable(secret):
    shutil.rmtree("real", ignore_errors=True)
    if os.path.islink("dir"):
        os.unlink("dir")
    os.makedirs("dir", exist_ok=True)
    for number in range(50):
        open(f"dir/{number}", "w").close()
    if not os.path.lexists("link"):
        os.symlink(secret, "link")


if __name__ == "__main__":
    main()
