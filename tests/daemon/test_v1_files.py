"""Files of a workspace over /v1: what is the session's own, whole, and nobody else's."""

import http.client
import json
import os
import pathlib
import re
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import as_shipped, most_resident_kib, read_all, wait_until
from harness import callers, main
from streams import StreamTest
from v1 import quoted


class Read(StreamTest):

    @callers("five", "user")
    def test_a_file_comes_with_an_etag_and_by_range(self):
        client = self.streams()
        session = client.session(files={"dir/a.txt": "0123456789"})
        whole = client.call("GET", session + "/files/dir/a.txt")
        self.assertEqual((whole.status, whole.body, whole.headers["content-type"], whole.headers["content-length"]),
                         (200, b"0123456789", "application/octet-stream", "10"))
        self.assertEqual(whole.headers["x-content-type-options"], "nosniff")
        etag = whole.headers["etag"]
        def get(**headers):
            return client.call("GET", session + "/files/dir/a.txt",
                               headers={name.replace("_", "-"): value for name, value in headers.items()})
        part = get(Range="bytes=2-4")
        self.assertEqual((part.status, part.body, part.headers["content-range"]), (206, b"234", "bytes 2-4/10"))
        self.assertEqual(get(Range="bytes=2-4", If_Range=etag).status, 206)
        self.assertEqual(get(Range="bytes=2-4", If_Range='"other"').body, b"0123456789")
        self.assertEqual((get(Range="bytes=10-").status, get(Range="bytes=10-").headers["content-range"]),
                         (416, "bytes */10"))
        for match in (etag, f'"x", W/{etag}', "*"):
            same = get(If_None_Match=match)
            self.assertEqual((same.status, same.body, same.headers["etag"]), (304, b"", etag))
        self.assertEqual(get(If_None_Match='"x"').status, 200)
        head = client.call("HEAD", session + "/files/dir/a.txt")
        self.assertEqual((head.status, head.body, head.headers["content-length"]), (200, b"", "10"))

    @as_shipped
    def test_a_directory_lists_what_is_in_it(self):
        client = self.streams()
        session = client.session(files={"a.txt": "abc", "dir/b.txt": "b", "dir/deep/c.txt": ""})
        client.exec(session, "ln -s a.txt link; mkfifo fifo; chmod 644 a.txt")
        for path in ("/files", "/files/"):
            listing = client.expect(200, "GET", session + path)
            entries = {entry["path"]: entry for entry in listing["entries"]}
            self.assertEqual((listing["path"], listing["truncated"]), ("", False))
            self.assertEqual({path: entry["type"] for path, entry in entries.items()},
                             {"a.txt": "file", "dir": "directory", "link": "other", "fifo": "other"})
            self.assertEqual((entries["a.txt"]["size"], entries["a.txt"]["mode"]), (3, "0644"))
            self.assertRegex(entries["a.txt"]["modified"], r"^20\d\d-.*Z$")
        below = client.expect(200, "GET", session + "/files/dir?depth=2")
        self.assertEqual(sorted(entry["path"] for entry in below["entries"]),
                         ["dir/b.txt", "dir/deep", "dir/deep/c.txt"])

    @as_shipped
    def test_names_are_bytes_of_any_kind(self):
        client = self.streams()
        session = client.session()
        client.expect(201, "PUT", session + "/files/a%FFb%20%E9%20%2525%0A", b"x")
        listed = client.expect(200, "GET", session + "/files")["entries"]
        import base64
        self.assertEqual(base64.b64decode(listed[0]["path_base64"]), b"a\xffb \xe9 %25\n")
        self.assertEqual(client.call("GET", session + "/files/a%FFb%20%E9%20%2525%0A").body, b"x")
        client.expect(201, "PUT", session + "/files/caf%C3%A9", b"x")
        # What would colour a terminal, turn a line round, or end a field of a head.
        hostile = "\x1b[31m", "a\u202etxt.exe", "a\r\nX-Injected: 1", '"><script>', "n" * 255
        for name in hostile:
            path = session + "/files/" + quoted(name)
            client.expect(201, "PUT", path, b"x")
            answer = client.call("GET", path)
            self.assertEqual((answer.status, answer.body), (200, b"x"), name)
            self.assertNotIn("x-injected", answer.headers)
        listing = client.call("GET", session + "/files")
        self.assertLessEqual(set(hostile), {entry.get("path") for entry in listing.json()["entries"]})
        self.assertFalse({byte for byte in listing.body if byte < 32} - set(b"\n"), "no control character is sent as it is")
        self.assertIn("café", [entry.get("path") for entry in client.expect(200, "GET", session + "/files")["entries"]])


class Changing(StreamTest):
    """Files that change while they are served, or are larger than anything that could be held."""

    def begun(self, client, path):
        """A reader who has the head of an answer, and takes no more of it for now; and the length that was told."""
        connection = client.raw()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(client.head("GET", path, "Connection: close"))
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        self.assertTrue(head.startswith(b"HTTP/1.1 200 "), head)
        return connection, int(re.search(rb"(?i)content-length: (\d+)", head)[1])

    @as_shipped
    def test_a_file_that_shrinks_ends_its_answer_short_and_one_that_grows_makes_it_no_longer(self):
        client = self.streams()
        session = client.session()
        size = 32 << 20
        for change, exact in (("truncate -s 1000 big", False), ("truncate -s 0 big", False), ("rm big", True),
                              ("cat /dev/zero | head -c 1000000 >> big", True), ("mv big old; echo new > big", True)):
            with self.subTest(change):
                client.call("PUT", session + "/files/big", b"x" * size)
                connection, told = self.begun(client, session + "/files/big")
                self.assertEqual(told, size)
                self.assertEqual(client.exec(session, change)["exit_code"], 0)
                got = read_all(connection)
                self.assertEqual(set(got), {ord("x")}, "no byte that the file has not had")
                self.assertEqual(len(got) == size, exact, f"{len(got)} bytes")
                self.assertLessEqual(len(got), size)
        self.assertEqual(client.exec(session, "echo up")["stdout"], "up\n")

    @as_shipped
    def test_a_file_of_holes_larger_than_all_memory_costs_none(self):
        client = self.streams()
        session = client.session()
        client.expect(201, "PUT", session + "/files/holes", b"x")
        size = 1 << 40
        os.truncate(client.daemon.root / session.rsplit("/", 1)[1] / "holes", size)
        last = client.call("GET", session + "/files/holes", headers={"Range": "bytes=-3"})
        self.assertEqual((last.status, last.body), (206, b"\0\0\0"))
        readers = [self.begun(client, session + "/files/holes") for _ in range(4)]
        for connection, told in readers:
            self.assertEqual(told, size)
            self.assertEqual(len(connection.recv(1 << 16, socket.MSG_WAITALL)), 1 << 16)
        self.assertLess(most_resident_kib(client.daemon.process.pid), 128 << 10)
        entry, = client.expect(200, "GET", session + "/files")["entries"]
        self.assertEqual(entry["size"], size)


class Write(StreamTest):

    @callers("five", "user")
    def test_a_file_is_written_whole_with_its_mode_and_its_parents_on_request(self):
        client = self.streams()
        session = client.session()
        made = client.expect(201, "PUT", session + "/files/a.sh?mode=0750", b"echo hi\n")
        self.assertEqual(made, {"path": "a.sh", "size": 8})
        self.assertEqual(client.exec(session, "stat -c %a a.sh; ./a.sh")["stdout"], "750\nhi\n")
        self.assertEqual(client.expect(200, "PUT", session + "/files/a.sh", b"")["size"], 0)
        client.problem(404, "not_found", "PUT", session + "/files/b/c/d", b"x")
        client.expect(201, "PUT", session + "/files/b/c/d?parents=true", b"x")
        self.assertEqual(client.call("GET", session + "/files/b/c/d").body, b"x")

    @as_shipped
    def test_if_match_lets_only_the_one_through_who_has_seen_the_file(self):
        client = self.streams()
        path = client.session(files={"a": "1"}) + "/files/a"
        etag = client.call("GET", path).headers["etag"]
        client.expect(200, "PUT", path, b"22", headers={"If-Match": etag})
        client.problem(412, "precondition", "PUT", path, b"333", headers={"If-Match": etag})
        self.assertEqual(client.call("GET", path).body, b"22")
        for broken in ("a", '"a", "b"', 'W/"a"', "*"):
            client.problem(400, "malformed", "PUT", path, b"", headers={"If-Match": broken})
            client.problem(400, "malformed", "DELETE", path, headers={"If-Match": broken})
        client.problem(412, "precondition", "DELETE", path, headers={"If-Match": etag})
        self.assertEqual(client.call("GET", path).body, b"22")
        client.expect(204, "DELETE", path, headers={"If-Match": client.call("GET", path).headers["etag"]})
        client.problem(412, "precondition", "DELETE", path, headers={"If-Match": etag})
        client.problem(404, "not_found", "DELETE", path)

    @as_shipped
    def test_a_body_of_many_pieces_is_streamed_and_split_anywhere(self):
        client = self.streams()
        session = client.session()
        big = os.urandom(1 << 20) * 20
        client.expect(201, "PUT", session + "/files/big", big)
        self.assertEqual(client.call("GET", session + "/files/big").body, big)
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (b"a", b"bc", b"\r\n", b"d" * 20)) + b"0\r\n\r\n"
        request = client.head("PUT", session + "/files/small", "Transfer-Encoding: chunked", "Connection: close") + body
        connection = client.raw()
        for byte in request:
            connection.sendall(bytes([byte]))
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        self.assertTrue(answer.startswith(b"HTTP/1.1 201 "), answer)
        self.assertEqual(client.call("GET", session + "/files/small").body, b"abc\r\n" + b"d" * 20)

    @as_shipped
    def test_an_upload_that_breaks_off_changes_nothing(self):
        client = self.streams()
        session = client.session(files={"a": "old"})
        for fields, body in ((("Content-Length: 100000",), b"x" * 50000),
                             (("Transfer-Encoding: chunked",), b"c350\r\n" + b"x" * 50000 + b"\r\n"),
                             (("Transfer-Encoding: chunked",), b"3\r\nxxx\r\nrubbish\r\n")):
            connection = client.raw()
            connection.sendall(client.head("PUT", session + "/files/a", *fields) + body)
            time.sleep(0.3)
            connection.close()
        # The helpers have seen the end of their pipes when a later one has answered and no one is left.
        self.assertTrue(wait_until(lambda: [entry["path"] for entry in client.expect(
            200, "GET", session + "/files")["entries"]] == ["a"]), "what was begun is removed")
        self.assertEqual(client.call("GET", session + "/files/a").body, b"old")

    @as_shipped
    def test_bodies_beyond_the_bound_are_refused_before_they_come(self):
        client = self.streams()
        session = client.session()
        connection = client.raw()
        connection.sendall(client.head("PUT", session + "/files/a", f"Content-Length: {(1 << 30) + 1}", "Expect: 100-continue"))
        self.assertTrue(connection.recv(65536).startswith(b"HTTP/1.1 413 "))
        self.assertEqual(client.expect(200, "GET", session + "/files")["entries"], [])

    @as_shipped
    def test_a_full_disk_is_507_and_leaves_the_old_file(self):
        client = self.streams()
        session = client.session(files={"a": "old"})
        workspace = pathlib.Path(client.daemon.root) / session.rsplit("/", 1)[1]
        if os.geteuid() != 0:
            self.skipTest("mounting takes root")
        import subprocess
        subprocess.run(["mkdir", workspace / "small"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0777", "none", workspace / "small"], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", workspace / "small"])
        client.problem(507, "no_space", "PUT", session + "/files/small/a", b"x" * 1000000)


class Removal(StreamTest):

    @as_shipped
    def test_files_are_deleted_and_directories_with_what_is_in_them_only_on_request(self):
        client = self.streams()
        session = client.session(files={"a": "", "dir/b": "", "empty/x": ""})
        client.expect(204, "DELETE", session + "/files/a")
        client.problem(404, "not_found", "DELETE", session + "/files/a")
        self.assertGreaterEqual(client.call("DELETE", session + "/files/dir").status, 400)
        client.expect(204, "DELETE", session + "/files/dir?recursive=true")
        client.expect(204, "DELETE", session + "/files/empty/x")
        client.expect(204, "DELETE", session + "/files/empty")
        client.problem(400, "malformed", "DELETE", session + "/files?recursive=true")
        client.problem(400, "malformed", "DELETE", session + "/files/a", headers={"If-None-Match": '"x"'})
        self.assertEqual(client.expect(200, "GET", session + "/files")["entries"], [])


class Refusals(StreamTest):

    @as_shipped
    def test_no_path_leads_out_of_the_workspace_and_none_is_guessed(self):
        client = self.streams()
        session = client.session(files={"a/b": "x"})
        for path in ("a%2Fb", "..", "%2e%2e", "a/../a/b", "./a/b", "a//b", "../../etc/passwd", "..%2F..%2Fetc%2Fpasswd"):
            with self.subTest(path):
                for method in ("GET", "PUT", "DELETE"):
                    client.problem(400, "malformed", method, f"{session}/files/{path}", b"" if method == "PUT" else None)
        self.assertEqual(client.call("GET", session + "/files/a/b").body, b"x", "the plain spelling works")
        client.problem(400, "malformed", "PUT", session + "/files/a/", b"")
        client.problem(400, "malformed", "PUT", session + "/files", b"")

    @as_shipped
    def test_links_devices_and_what_is_not_the_session_s_are_not_touched(self):
        client = self.streams()
        session = client.session(files={"own": "mine"})
        client.exec(session, "ln -s /etc/passwd link; ln -s /etc dir; ln own hard; mkfifo fifo; mkdir d; ln -s d d2")
        for name in ("link", "hard", "own", "fifo"):
            with self.subTest(name):
                client.problem(403, "refused", "GET", f"{session}/files/{name}")
                client.problem(403, "refused", "PUT", f"{session}/files/{name}", b"x")
        for method, path in (("GET", "dir/passwd"), ("PUT", "dir/x"), ("GET", "dir"), ("GET", "d2"), ("PUT", "d2/x")):
            with self.subTest(method=method, path=path):
                self.assertIn(client.call(method, f"{session}/files/{path}", b"" if method == "PUT" else None).status,
                              (403, 404, 422))
        client.exec(session, "rm hard")
        self.assertEqual(client.call("GET", session + "/files/own").body, b"mine", "with one link it is a plain file")

    @as_shipped
    def test_queries_and_sessions_that_are_not_there_are_refused(self):
        client = self.streams()
        session = client.session()
        for method, query in (("GET", "depth=0"), ("GET", "depth=65"), ("GET", "x=1"), ("PUT", "mode=888"),
                              ("PUT", "mode=4755"), ("PUT", "x=1"), ("DELETE", "recursive=yes")):
            client.problem(422, "invalid", method, f"{session}/files/a?{query}", b"" if method == "PUT" else None)
        for method in ("GET", "PUT", "DELETE"):
            client.problem(404, "not_found", method, "/v1/sessions/none/files/a", b"" if method == "PUT" else None)
        client.problem(404, "not_found", "GET", session + "/files/a")
        client.call("DELETE", session)
        client.problem(409, "ended", "GET", session + "/files/a")


    @as_shipped
    def test_a_part_is_not_taken_for_the_whole_and_another_state_is_not_read(self):
        client = self.streams()
        session = client.session(files={"a": "whole"})
        path = session + "/files/a"
        client.problem(400, "malformed", "PUT", path, b"x", headers={"Content-Range": "bytes 0-0/5"})
        read = client.call("GET", path)
        self.assertEqual(read.body, b"whole")
        etag = read.headers["etag"]
        for other in ('"1-1-1"', "W/" + etag, "nonsense"):
            client.problem(412, "precondition", "GET", path, headers={"If-Match": other})
        for same in (etag, f'"1-1-1", {etag}', "*"):
            self.assertEqual(client.call("GET", path, headers={"If-Match": same}).body, b"whole")


class Complaints(StreamTest):

    @as_shipped
    def test_docker_sbx_163_and_496_stuck_uploads_hold_up_no_other_file_work(self):
        client = self.streams()
        session = client.session(files={"a": "x"})
        stuck = []
        for number in range(20):
            connection = client.raw()
            connection.sendall(client.head("PUT", f"{session}/files/stuck{number}", "Content-Length: 1000") + b"x")
            stuck.append(connection)
        busy = [connection for connection in stuck[16:] if b" 503 " in connection.recv(65536)]
        self.assertEqual(len(busy), 4, "sixteen at once, and the others are told so")
        self.assertEqual(client.call("GET", session + "/files/a").body, b"x")
        self.assertTrue(client.expect(200, "GET", session + "/files")["entries"])
        for connection in stuck:
            connection.close()
        self.assertTrue(wait_until(lambda: client.call("PUT", session + "/files/b", b"y").status in (200, 201)))

    @as_shipped
    def test_readers_who_stall_or_vanish_in_a_large_file_leave_the_daemon_at_work(self):
        client = self.streams()
        session = client.session()
        client.expect(201, "PUT", session + "/files/big", b"x" * (32 << 20))
        stalled = [client.open("GET", session + "/files/big") for _ in range(20)]
        self.assertEqual(client.exec(session, "echo up")["stdout"], "up\n")
        for response in stalled[10:]:
            response.connection.close()
        for response in stalled[:2]:
            self.assertEqual(len(response.read()), 32 << 20)

    @as_shipped
    def test_a_session_that_is_deleted_during_an_upload_is_gone_in_time(self):
        client = self.streams()
        session = client.session()
        connection = client.raw()
        connection.sendall(client.head("PUT", session + "/files/a", "Content-Length: 1000") + b"x")
        self.assertTrue(wait_until(lambda: client.expect(200, "GET", session + "/files")["entries"]))
        began = time.monotonic()
        self.assertTrue(wait_until(lambda: client.call("DELETE", session).status == 204))
        self.assertLess(time.monotonic() - began, 30)


if __name__ == "__main__":
    main()
