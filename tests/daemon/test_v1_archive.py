"""A workspace as a tar over /v1, by Python's own tarfile."""

import gzip
import io
import os
import pathlib
import sys
import tarfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import as_shipped, wait_until
from harness import callers, main
from streams import StreamTest

TAR = {"Content-Type": "application/x-tar"}


def tar_of(files, **more):
    """A tar of {path: content}, and of entries that `more` says: {name: (type, linkname)}."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o640
            tar.addfile(entry, io.BytesIO(content))
        for path, (kind, link) in more.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = kind, link
            tar.addfile(entry)
    return data.getvalue()


def files_of(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {entry.name: tar.extractfile(entry).read() if entry.isfile() else None for entry in tar}


class Archive(StreamTest):

    @callers("five", "user")
    def test_what_goes_in_comes_out(self):
        client = self.streams()
        session = client.session()
        files = {"a.txt": b"abc", "dir/b": b"", "dir/" + "n" * 200: os.urandom(100000), "café": b"x"}
        client.expect(204, "PUT", session + "/archive", tar_of(files), headers=TAR)
        self.assertEqual(client.exec(session, "cat a.txt; stat -c %a a.txt")["stdout"], "abc640\n")
        answer = client.call("GET", session + "/archive")
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/x-tar"))
        self.assertEqual(files_of(answer.body), {"dir": None, **files})
        below = client.call("GET", session + "/archive?path=dir")
        self.assertEqual(set(files_of(below.body)), {"b", "n" * 200})
        client.expect(204, "PUT", session + "/archive?path=dir", tar_of({"c": b"y"}), headers=TAR)
        self.assertEqual(client.call("GET", session + "/files/dir/c").body, b"y")

    @as_shipped
    def test_a_large_archive_is_streamed_and_its_connection_serves_on(self):
        client = self.streams()
        session = client.session()
        big = os.urandom(1 << 20) * 24
        client.expect(204, "PUT", session + "/archive", tar_of({"big": big}), headers=TAR)
        connection = client.connection()
        self.addCleanup(connection.close)
        for _ in range(2):
            connection.request("GET", session + "/archive", headers=client.headers())
            self.assertEqual(files_of(connection.getresponse().read()), {"big": big})

    @as_shipped
    def test_links_and_devices_in_a_tar_and_ways_out_of_the_workspace_are_refused(self):
        client = self.streams()
        session = client.session()
        for name, tar in {"a link": tar_of({}, x=(tarfile.SYMTYPE, "/etc/passwd")),
                          "a hard link": tar_of({"a": b""}, x=(tarfile.LNKTYPE, "a")),
                          "a device": tar_of({}, x=(tarfile.CHRTYPE, "")),
                          "a way up": tar_of({"../x": b"x"}), "an absolute path": tar_of({"/tmp/x": b"x"}),
                          "no tar": b"x" * 2000, "half a tar": tar_of({"a": b"x" * 5000})[:3000]}.items():
            with self.subTest(name):
                answer = client.call("PUT", session + "/archive", tar, headers=TAR)
                self.assertIn(answer.status, (403, 422), repr(answer))
        self.assertFalse(pathlib.Path("/tmp/x").exists() and pathlib.Path("/tmp/x").is_file())

    @as_shipped
    def test_archives_that_are_bombs_are_refused_by_what_they_say_of_themselves(self):
        client = self.streams()
        session = client.session()
        entry = tar_of({}, d=(tarfile.DIRTYPE, ""))[:512]
        many = tarfile.TarInfo("large")
        many.size = 5 << 30
        for name, tar in {"entries": entry * 100_001, "a size": many.tobuf() + bytes(10240)}.items():
            answer = client.call("PUT", session + "/archive", tar + bytes(1024), headers=TAR)
            self.assertEqual((answer.status, answer.json()["code"]), (413, "too_large"), f"{name}: {answer}")
        for coding in ("application/gzip", "application/x-gtar-compressed", "application/zstd"):
            client.problem(415, "unsupported_media_type", "PUT", session + "/archive", b"", headers={"Content-Type": coding})
        packed = client.call("PUT", session + "/archive", gzip.compress(entry * 100), headers={**TAR, "Content-Encoding": "gzip"})
        self.assertEqual((packed.status, packed.json()["code"]), (422, "invalid"), "nothing is unpacked on the way")
        client.expect(204, "PUT", session + "/archive", entry * 1000 + bytes(1024), headers=TAR)

    @as_shipped
    def test_types_paths_and_sessions_that_are_none_are_refused_before_the_body(self):
        client = self.streams()
        session = client.session(files={"a": "x"})
        client.problem(415, "unsupported_media_type", "PUT", session + "/archive", b"",
                       headers={"Content-Type": "application/zip"})
        client.problem(415, "unsupported_media_type", "PUT", session + "/archive", b"")
        client.problem(404, "not_found", "GET", session + "/archive?path=none")
        self.assertIn(client.call("GET", session + "/archive?path=a").status, (403, 404, 422))
        client.problem(422, "invalid", "GET", session + "/archive?path=../..")
        client.problem(422, "invalid", "GET", session + "/archive?form=zip")
        client.problem(404, "not_found", "GET", "/v1/sessions/none/archive")

    @as_shipped
    def test_links_and_pipes_in_the_workspace_are_left_out(self):
        client = self.streams()
        session = client.session(files={"a": "x"})
        client.exec(session, "ln -s /etc/passwd link; mkfifo fifo; ln -s /etc dir")
        self.assertEqual(files_of(client.call("GET", session + "/archive").body), {"a": b"x"})

    @as_shipped
    def test_readers_who_vanish_in_an_archive_free_their_helper(self):
        client = self.streams()
        session = client.session()
        client.expect(201, "PUT", session + "/files/big", b"x" * (32 << 20))
        for _ in range(20):
            response = client.open("GET", session + "/archive")
            if response.status == 200:
                response.read(100)
            response.connection.close()
        self.assertTrue(wait_until(lambda: client.call("GET", session + "/archive").status == 200))


if __name__ == "__main__":
    main()
