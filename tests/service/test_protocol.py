"""What whoever has taken belljard over may try on the service's socket. Each with the right request beside it."""

import json
import os
import pathlib
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from client import Service, ServiceTest, body_of, memfd
from harness import callers, descendants, main, once, wait_for


class Connection(ServiceTest):
    """A message that cannot be answered ends the connection, and the service with it."""

    def ends(self, data):
        service = self.start_service()
        service.send(data)
        self.assertIsNone(service.receive(), data[:50])
        self.assertEqual(service.process.wait(20), 0)

    def test_a_message_that_is_no_request_ends_it(self):
        for data in (b"x", b"{", b"[]", b"null", b"7", b'"hello"', b"\0", b"\xff\xfe", b"{}", b'{"do":"hello"}', b'{"id":"1","do":"hello"}',
                     b'{"id":-1,"do":"hello"}', b'{"id":1.5,"do":"hello"}', b'{"id":18446744073709551616,"do":"hello"}',
                     b'{"id":1,"do":"hello"} x', b'{"id":1,"do":"hello"}{"id":2,"do":"hello"}', b"[" * 60000, b'{"id":1,"do":"\\ud800"}'):
            with self.subTest(data[:40]):
                self.ends(data)

    @once
    def test_one_of_more_than_64_kib_ends_it(self):
        self.ends(b'{"id":1,"do":"hello"}' + b" " * 65536)

    @once
    def test_one_of_64_kib_does_not(self):
        service = self.start_service()
        text = b'{"id":9,"do":"hello"}'
        service.send(text + b" " * (65536 - len(text)))
        self.assertIn("ok", service.receive()[0])

    @once
    def test_an_empty_one_ends_it(self):
        self.ends(b"")


class Requests(ServiceTest):
    def setUp(self):
        super().setUp()
        self.service = self.start_service()

    def tearDown(self):
        self.assertEqual(self.service.ask("hello")["version"], self.service.hello["version"])
        super().tearDown()

    def refused(self, text, code="invalid", message=""):
        self.service.send(text if isinstance(text, bytes) else json.dumps(text).encode())
        answer, fds = self.service.receive()
        self.assertEqual((answer["id"], answer["error"]["code"], fds), (5, code, []))
        self.assertIn(message, answer["error"]["message"])

    def test_what_the_page_does_not_have_is_refused(self):
        self.refused({"id": 5}, message="do: is missing")
        self.refused({"id": 5, "do": "hallo"}, message='there is no "hallo"')
        self.refused({"id": 5, "do": 7}, message="do: expected a string")
        self.refused({"id": 5, "do": "hello", "uid": 0}, message='"uid": unknown member')
        self.refused(b'{"id":5,"do":"hello","do":"sweep"}', message="do")
        for member in ("drop_in", "literal", "argv0", "files", "bwrap"):
            self.refused({"id": 5, "do": "launch", "session": "s", "uid": self.service.uid, "workspace": "w",
                          "policy": "builtin:agent@1", "settings": [], "variables": {}, "environment": {},
                          "argv": ["true"], member: {}}, message=f'"{member}": unknown member')
        self.refused({"id": 5, "do": "sweep"}, message="uid: is missing")
        self.refused({"id": 5, "do": "open", "workspace": "w"}, message="path: is missing")
        self.refused({"id": 5, "do": "open", "workspace": "w", "path": ["a"]}, message="path: expected a string")
        self.refused({"id": 5, "do": "open", "workspace": "w", "path": "a", "uid": 0}, message="unknown member")
        self.refused({"id": 5, "do": "delete", "workspace": "w", "path": "a", "recursive": 1}, message="expected true or false")
        listing = {"id": 5, "do": "list", "workspace": "w", "path": "", "depth": 1, "content": 0, "total": 0, "skip": []}
        for wrong in ({"depth": 0}, {"depth": 65}, {"content": 1 << 40}, {"total": -1}, {"skip": "a"}, {"skip": [1]}):
            self.refused({**listing, **wrong}, message=next(iter(wrong)))
        self.refused(listing, "not_found")

    def test_descriptors_that_do_not_belong_are_refused(self):
        null = os.open("/dev/null", os.O_RDWR)
        for do, count, members in (("hello", 1, {}), ("hello", 8, {}), ("sweep", 1, {"uid": self.service.uid}), ("remove", 1, {"workspace": "w"}),
                                   ("prepare", 0, {"workspace": "w", "uid": self.service.uid}), ("prepare", 2, {"workspace": "w", "uid": self.service.uid}),
                                   ("write", 0, {"workspace": "w", "path": "a", "mode": "0600", "parents": False}), ("hello", 200, {})):
            with self.subTest(f"{do} with {count}"):
                self.check_code(self.service.refusal(do, [null] * count, **members), "invalid", "descriptors belong")
        os.close(null)
        wait_for(lambda: not self.leaked(), what="the descriptors' end")

    def leaked(self):
        """Copies of /dev/null beyond the service's own standard streams."""
        fds = pathlib.Path(f"/proc/{self.service.process.pid}/fd")
        try:
            return [fd for fd in fds.iterdir() if int(fd.name) > 2 and os.readlink(fd) == "/dev/null"]
        except FileNotFoundError:
            return True

    def test_a_long_name_in_an_error_is_cut(self):
        error = self.service.refusal("x" * 60000)
        self.assertLess(len(error["message"]), 5000)


class Floods(ServiceTest):
    @once
    def test_thousands_of_requests_without_reading_an_answer(self):
        service = self.start_service()
        service.socket.setblocking(False)
        sent = 0
        try:
            while sent < 20000:
                service.send({"id": sent, "do": "hello"})
                sent += 1
        except BlockingIOError:
            pass
        size = lambda: int(pathlib.Path(f"/proc/{service.process.pid}/statm").read_text().split()[1]) * 4
        before = size()
        service.socket.setblocking(True)
        service.socket.settimeout(30)
        for number in range(sent):
            self.assertEqual(service.receive()[0]["id"], number)
        self.assertLess(before, 64 << 10, "KiB are resident")
        self.assertIn("version", service.ask("hello"))

    @once
    def test_a_thousand_jobs_wait_for_their_turn_256_of_one_workspace_and_not_one_more(self):
        service = self.start_service()
        places, pipes, waiting = ["w", "v", "x", "y"], [], []
        for i, place in enumerate(places):
            service.prepare(place, {"a": b"x"}, uid=service.uid + i if self.privileged else None)
            for n in range(8):  # Each keeps a helper busy until its pipe ends.
                read, write = os.pipe()
                pipes.append(write)
                service.post("write", [read], workspace=place, path=f"f{n}", mode="0600", parents=False)
                os.close(read)
        for place in places:
            asked = [service.post("open", workspace=place, path="a") for _ in range(259)]
            for number in asked[256:]:
                self.assertEqual(service.answer(number)[0]["error"]["code"], "busy")
            waiting += asked[:256]
        self.assertEqual(service.refusal("gone")["code"], "busy")
        self.assertLessEqual(len(descendants(service.process.pid)), 33)
        for write in pipes:
            os.close(write)
        for number in waiting:
            answer, fds = service.answer(number)
            self.assertIn("ok", answer)
            os.close(fds[0])

    @once
    def test_it_ends_while_answers_wait_for_a_reader(self):
        service = self.start_service()
        service.prepare("w", {"a": b"x"})
        for _ in range(100):
            service.post("open", workspace="w", path="a")
        service.close()
        self.assertEqual(service.process.returncode, 0)


if __name__ == "__main__":
    main()
