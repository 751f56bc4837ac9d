"""Workspaces as tars: what goes out, and what may come in. Python's tarfile is the other side."""

import io
import os
import pathlib
import subprocess
import sys
import tarfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from client import ServiceTest
from harness import main, once


def tar_of(*members, form=tarfile.PAX_FORMAT, **headers):
    """A tar of (name, content) and of whole TarInfos."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, **headers) as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member, io.BytesIO(b"x" * member.size))
                continue
            info = tarfile.TarInfo(member[0])
            info.size, info.mode = len(member[1]), 0o640
            tar.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


class Archive(ServiceTest):
    def setUp(self):
        super().setUp()
        self.service = self.start_service()
        self.path = self.service.prepare("w", {"a.txt": b"hello", "dir/b.txt": b"x" * 1000, "dir/empty": None})

    def take_out(self, path=""):
        """The bytes of the archive, and the answer."""
        read, write = os.pipe()
        number = self.service.post("archive", [write], workspace="w", path=path, way="out")
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            data = pipe.read()
        return data, self.service.answer(number)[0]

    def put_in(self, data, path=""):
        """The answer to an archive that comes in."""
        read, write = os.pipe()
        number = self.service.post("archive", [read], workspace="w", path=path, way="in")
        os.close(read)

        def feed():
            with os.fdopen(write, "wb") as pipe:
                try:
                    pipe.write(data)
                except BrokenPipeError:
                    pass
        feeder = threading.Thread(target=feed)
        feeder.start()
        answer = self.service.answer(number)[0]
        feeder.join()
        return answer

    def names(self):
        return sorted(str(entry.relative_to(self.path)) for entry in self.path.rglob("*"))

    def test_what_goes_out_comes_in_again(self):
        long = "deep/" * 60 + "file"
        self.service.write(long, b"far", parents=True)
        self.service.write("n" * 255, b"")
        os.chmod(self.path / "a.txt", 0o751)
        before = {name: (self.path / name).stat().st_mode for name in self.names()}
        data, answer = self.take_out()
        self.assertEqual(answer["ok"], {"entries": len(before), "left_out": 0})
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            self.assertEqual(sorted(tar.getnames()), sorted(before))
            self.assertEqual(tar.extractfile(long).read(), b"far")
            self.assertEqual(tar.getmember("a.txt").mode, 0o751)
        for name in os.listdir(self.path):
            self.service.ask("delete", workspace="w", path=name, recursive=True)
        self.assertEqual(self.names(), [])
        self.assertEqual(self.put_in(data)["ok"], {"entries": len(before)})
        self.assertEqual({name: (self.path / name).stat().st_mode for name in self.names()}, before)
        self.assertEqual(self.service.read("dir/b.txt"), b"x" * 1000)

    def test_gnu_tar_reads_it(self):
        self.service.write("d" * 200 + "/ü", b"", parents=True)
        data, _ = self.take_out()
        done = subprocess.run(["tar", "-tf", "-"], input=data, capture_output=True, env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]})
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(b"d" * 200 + b"/", done.stdout)

    def test_all_that_is_no_plain_file_is_left_out(self):
        self.service.as_session(lambda: os.symlink("/etc/passwd", self.path / "link") or os.mkfifo(self.path / "fifo") or
                                os.link(self.path / "a.txt", self.path / "hard"))
        data, answer = self.take_out()
        self.assertEqual(answer["ok"]["left_out"], 4)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            self.assertEqual(tar.getnames(), ["dir", "dir/b.txt", "dir/empty"])

    def test_every_form_of_tar_comes_in(self):
        for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            with self.subTest(form):
                name = "f" * 90 + "/" + "g" * 90 + str(form)
                self.assertIn("ok", self.put_in(tar_of((name, b"content"), form=form)))
                self.assertEqual(self.service.read(name), b"content")
        self.assertIn("ok", self.put_in(tar_of(("./x/", b""), ("./y", b"1"))))
        self.assertIn("ok", self.put_in(tar_of(("a.txt", b"new"), ("new", b"")), path="dir"))
        self.assertEqual(self.service.read("dir/a.txt"), b"new")
        self.assertEqual((self.path / "dir/a.txt").stat().st_uid, self.service.uid)

    def test_no_entry_leads_out(self):
        for name in ("/etc/x", "../x", "a/../../x", "..", "a//b"):
            with self.subTest(name):
                self.check_code(self.put_in(tar_of((name, b"x")))["error"], "refused")
        self.service.as_session(lambda: os.symlink("/tmp", self.path / "out"))
        self.check_code(self.put_in(tar_of(("out/x", b"x")))["error"], "refused")
        self.check_code(self.put_in(tar_of(("out", b"x")))["error"], "refused")

    def test_links_devices_and_setuid_do_not_come_in(self):
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"7", b"S", b"D", b"V"):
            with self.subTest(kind):
                info = tarfile.TarInfo("strange")
                info.type, info.linkname = kind, "/etc/passwd"
                self.check_code(self.put_in(tar_of(info))["error"], "refused")
        info = tarfile.TarInfo("setuid")
        info.mode = 0o6755
        self.assertIn("ok", self.put_in(tar_of(info)))
        self.assertEqual((self.path / "setuid").stat().st_mode & 0o7777, 0o755)
        self.assertNotIn("strange", self.names())

    def test_a_tar_that_is_none_is_refused(self):
        good = tar_of(("x", b"1" * 600))
        cases = {"text": b"hello" * 1000, "nothing": b"", "half a header": good[:300], "half a file": good[:700], "half the padding": good[:1100],
                 "wrong sum": bytes([good[0] ^ 1]) + good[1:], "huge size": tar_of(("x", b""))[:0] + self.with_size(b"77777777777\0"),
                 "negative size": self.with_size(b"-0000000001\0"), "binary size": self.with_size(b"\xff" * 12),
                 "wrong records": tar_of(("x", b""), headers=None) if False else self.with_records(b"99 path=x\n"),
                 "records without a length": self.with_records(b"path=x\n"), "size in letters": self.with_records(b"11 size=abc\n")}
        for name, data in cases.items():
            with self.subTest(name):
                self.assertIn(self.put_in(data)["error"]["code"], ("invalid", "too_large"))
        self.assertEqual(self.names(), ["a.txt", "dir", "dir/b.txt", "dir/empty"])
        self.assertIn("ok", self.put_in(good))

    def header(self, name, size, kind):
        block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT)[:512])
        block[124:136], block[156:157] = size, kind
        block[148:156] = b"        "
        block[148:156] = b"%06o\0 " % sum(block)
        return bytes(block)

    def with_size(self, size):
        return self.header("x", size, b"0") + b"\0" * 2048

    def with_records(self, records):
        return self.header("pax", b"%011o\0" % len(records), b"x") + records.ljust(512, b"\0") + self.header("x", b"%011o\0" % 0, b"0") + b"\0" * 1024

    def test_a_reader_that_goes_away_ends_it(self):
        self.service.write("large", b"x" * 1_000_000)
        read, write = os.pipe()
        number = self.service.post("archive", [write], workspace="w", path="", way="out")
        os.close(write)
        os.close(read)
        self.assertEqual(self.service.answer(number)[0]["error"]["errno"], "EPIPE")


if __name__ == "__main__":
    main()
