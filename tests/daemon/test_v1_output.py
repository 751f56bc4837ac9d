"""The output of processes over HTTP: one journal in three forms, and no end that did not happen."""

import http.client
import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import as_shipped, wait_until
from harness import callers, main
from streams import StreamTest, bytes_of, text_of

NDJSON, EVENTS, OCTETS = "application/x-ndjson", "text/event-stream", "application/octet-stream"


def events_of(body):
    """[(event, id, data)] and the number of comments of a text/event-stream."""
    events, comments = [], 0
    for block in body.decode().split("\n\n"):
        if block.startswith(":"):
            comments += 1
        elif block:
            fields = dict(line.split(": ", 1) for line in block.splitlines())
            events.append((fields["event"], fields["id"], json.loads(fields["data"])))
    return events, comments


class Lines(StreamTest):

    @callers("five", "user")
    def test_each_line_has_stream_offset_time_and_text_and_the_record_comes_last(self):
        client = self.streams()
        session = client.session()
        lines = client.lines(client.start(session, "echo one; echo two >&2; exit 3") + "/output?follow=true")
        self.assertEqual({line["type"] for line in lines[:-1]}, {"output"})
        self.assertEqual((text_of(lines), text_of(lines, "stderr")), ("one\n", "two\n"))
        self.assertEqual([line["offset"] for line in lines[:-1]], [0, 0])
        for line in lines[:-1]:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        end = lines[-1]
        self.assertEqual((end["type"], end["cause"], end["exit_code"], end["signal"]), ("end", "exited", 3, None))
        self.assertEqual(end["record"]["exit_code"], 3)

    @as_shipped
    def test_a_stream_follows_a_process_from_its_first_byte_to_its_end(self):
        client = self.streams()
        process = client.start(client.session(), "echo first; read line; echo got $line", stdin="open")
        stream = client.open("GET", process + "/output?follow=true")
        self.assertEqual(json.loads(stream.readline())["text"], "first\n")
        client.expect(200, "POST", process + "/stdin", b"x\n", headers={"Content-Type": OCTETS})
        self.assertEqual(json.loads(stream.readline())["text"], "got x\n")
        self.assertEqual(json.loads(stream.readline())["type"], "end")
        self.assertEqual(stream.read(), b"")

    @as_shipped
    def test_without_follow_what_is_there_ends_with_where_to_go_on_and_no_end_is_made_up(self):
        client = self.streams()
        process = client.start(client.session(), "echo first; read line; echo second", stdin="open")
        self.assertTrue(wait_until(lambda: len(client.lines(process + "/output")) == 2))
        lines = client.lines(process + "/output")
        self.assertEqual([line["type"] for line in lines], ["output", "heartbeat"])
        self.assertEqual(lines[-1]["offsets"], {"stdout": 6, "stderr": 0})
        client.expect(200, "POST", process + "/stdin", b"\n", headers={"Content-Type": OCTETS})
        client.wait(process)
        lines = client.lines(process + "/output?stdout=6&stderr=0")
        self.assertEqual((text_of(lines), lines[-1]["type"]), ("second\n", "end"))

    @as_shipped
    def test_bytes_that_are_no_text_are_base64(self):
        client = self.streams()
        process = client.start(client.session(), r"printf 'caf\303\251 '; read x; printf '\377\376'; printf '\200' >&2",
                               stdin="open")
        stream = client.open("GET", process + "/output?follow=true")
        lines = [json.loads(stream.readline())]
        client.expect(200, "POST", process + "/stdin", b"\n", headers={"Content-Type": OCTETS})
        lines += [json.loads(line) for line in stream.read().splitlines()]
        self.assertEqual(bytes_of(lines), b"caf\xc3\xa9 \xff\xfe")
        self.assertEqual(bytes_of(lines, "stderr"), b"\x80")
        self.assertEqual([line["text"] for line in lines if "text" in line], ["café "])

    @as_shipped
    def test_a_character_that_comes_in_two_writes_is_not_torn(self):
        client = self.streams()
        process = client.start(client.session(), r"printf 'a\360\237'; read x; printf '\230\200b'; exit 0",
                               stdin="open")
        stream = client.open("GET", process + "/output?follow=true")
        self.assertEqual(json.loads(stream.readline())["text"], "a")
        now = client.lines(process + "/output")
        self.assertEqual(now[-1]["offsets"]["stdout"], 1, "who goes on from here misses no byte")
        client.expect(200, "POST", process + "/stdin", b"\n", headers={"Content-Type": OCTETS})
        line = json.loads(stream.readline())
        self.assertEqual((line["offset"], line["text"]), (1, "\U0001f600b"))

    @as_shipped
    def test_a_character_that_is_never_finished_comes_as_base64_before_the_end(self):
        client = self.streams()
        lines = client.lines(client.ran(client.session(), r"printf 'a\360\237'") + "/output")
        self.assertEqual(bytes_of(lines), b"a\xf0\x9f")
        self.assertEqual(lines[-1]["type"], "end")

    @as_shipped
    def test_what_was_dropped_is_said_as_a_gap_and_no_byte_is_in_two_places(self):
        client = self.streams()
        process = client.ran(client.session(), "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last")
        lines = client.lines(process + "/output?stream=stdout")
        at, gaps = 0, 0
        for line in lines[:-1]:
            if line["type"] == "gap":
                self.assertEqual(line["from"], at)
                at, gaps = line["to"], gaps + 1
            else:
                self.assertEqual(line["offset"], at)
                at += len(line["text"])
        self.assertEqual((at, gaps), (3000006, 1))
        self.assertTrue(lines[-2]["text"].endswith("last\n"))

    @as_shipped
    def test_offsets_that_nobody_has_written_and_queries_that_mean_nothing_are_refused(self):
        client = self.streams()
        process = client.ran(client.session(), "echo one")
        for query in ("stream=stdout&offset=5", "stdout=5", "stderr=1", "offset=0", "stream=all", "follow=perhaps",
                      "offset=-1&stream=stdout", "form=raw", "stream=stdout&stream=stderr"):
            with self.subTest(query):
                client.problem(422, "invalid", "GET", f"{process}/output?{query}")
        client.problem(406, "not_acceptable", "GET", process + "/output", headers={"Accept": "text/html"})
        client.problem(404, "not_found", "GET", process + "9/output")
        self.assertEqual(text_of(client.lines(process + "/output?stream=stdout&offset=4")), "")

    @as_shipped
    def test_a_terminal_has_one_stream(self):
        client = self.streams()
        process = client.ran(client.session(), "echo one; echo two >&2", tty={"cols": 80, "rows": 24})
        lines = client.lines(process + "/output")
        self.assertEqual(text_of(lines), "one\r\ntwo\r\n")
        client.problem(422, "invalid", "GET", process + "/output?stream=stderr")

    @as_shipped
    def test_tcp_clients_see_records_without_what_the_host_lacks(self):
        client = self.streams()
        process = client.ran(client.session(), "true")
        self.assertIn("usage", client.lines(process + "/output")[-1]["record"])
        record = self.streams_over_tcp(client).lines(process + "/output")[-1]["record"]
        self.assertIn("usage", record)
        self.assertNotIn("degraded", record)

    @as_shipped
    def test_heartbeats_come_where_nothing_else_does(self):
        client = self.streams()
        process = client.start(client.session(), "read line", stdin="open")
        streams = [client.open("GET", process + "/output?follow=true", headers={"Accept": accept})
                   for accept in (NDJSON, EVENTS)]
        streams.append(client.open("GET", "/v1/events?follow=true&after=last"))
        self.assertEqual(json.loads(streams[0].readline())["type"], "heartbeat")
        self.assertEqual(streams[1].readline(), b": heartbeat\n")
        self.assertEqual(json.loads(streams[2].readline())["type"], "heartbeat")


class Events(StreamTest):

    @as_shipped
    def test_the_same_objects_come_as_events_whose_ids_resume(self):
        client = self.streams()
        process = client.ran(client.session(), "echo one; echo two >&2; sleep 0.2; echo three")
        accept = {"Accept": EVENTS}
        answer = client.call("GET", process + "/output", headers=accept)
        self.assertEqual(answer.headers["content-type"], EVENTS)
        events, _ = events_of(answer.body)
        self.assertEqual([name for name, *_ in events][-1], "end")
        self.assertEqual([data["type"] for _, _, data in events], [name for name, *_ in events])
        for index, (_, last, _) in enumerate(events[:-1]):
            again, _ = events_of(client.call("GET", process + "/output",
                                             headers={**accept, "Last-Event-ID": last}).body)
            self.assertEqual(bytes_of([data for *_, data in events[:index + 1] + again]), b"one\nthree\n")
            self.assertEqual(bytes_of([data for *_, data in events[:index + 1] + again], "stderr"), b"two\n")

    @as_shipped
    def test_an_event_source_that_has_seen_the_end_is_told_to_stop(self):
        client = self.streams()
        process = client.ran(client.session(), "echo one")
        headers = {"Accept": EVENTS, "Last-Event-ID": "end"}
        self.assertEqual(client.call("GET", process + "/output?follow=true", headers=headers).status, 204)
        client.problem(400, "malformed", "GET", process + "/output", headers={**headers, "Last-Event-ID": "7"})


class Octets(StreamTest):

    @as_shipped
    def test_the_bytes_of_one_stream_come_as_they_were_written_and_by_range(self):
        client = self.streams()
        process = client.ran(client.session(), r"printf '0123456789\377'; echo err >&2")
        def get(query="", **headers):
            return client.call("GET", f"{process}/output?{query}", headers={"Accept": OCTETS, **headers})
        whole = get()
        self.assertEqual((whole.status, whole.body, whole.headers["content-length"]),
                         (200, b"0123456789\xff", "11"))
        self.assertEqual(get("stream=stderr").body, b"err\n")
        self.assertEqual(get("stream=stdout&offset=9").body, b"9\xff")
        for wanted, body, told in (("bytes=2-4", b"234", "bytes 2-4/11"), ("bytes=-2", b"9\xff", "bytes 9-10/11"),
                                   ("bytes=9-", b"9\xff", "bytes 9-10/11"), ("bytes=0-99", whole.body, "bytes 0-10/11")):
            part = get(Range=wanted)
            self.assertEqual((part.status, part.body, part.headers["content-range"]), (206, body, told))
        for ignored in ("bytes=4-2", "lines=1-2", "bytes=0-1,3-4", "bytes=x-", "bytes=-"):
            self.assertEqual((get(Range=ignored).status, get(Range=ignored).body), (200, whole.body), ignored)
        for beyond in ("bytes=11-", "bytes=-0"):
            refused = get(Range=beyond)
            self.assertEqual((refused.status, refused.headers["content-range"]), (416, "bytes */11"))
        client.problem(422, "invalid", "GET", process + "/output?stream=both", headers={"Accept": OCTETS})

    @as_shipped
    def test_octets_that_are_missing_are_refused_and_never_left_out(self):
        client = self.streams()
        process = client.ran(client.session(), "head -c 3000000 /dev/zero; printf end")
        accept = {"Accept": OCTETS}
        client.problem(409, "gap", "GET", process + "/output", headers=accept)
        client.problem(409, "gap", "GET", process + "/output", headers={**accept, "Range": "bytes=65530-65540"})
        self.assertEqual(client.call("GET", process + "/output", headers={**accept, "Range": "bytes=-3"}).body, b"end")
        stream = client.open("GET", process + "/output?follow=true", headers=accept)
        with self.assertRaises(http.client.IncompleteRead):
            stream.read()

    @as_shipped
    def test_followed_octets_end_with_their_stream(self):
        client = self.streams()
        process = client.start(client.session(), "echo one; read x; echo two", stdin="open")
        stream = client.open("GET", process + "/output?follow=true&stream=stdout", headers={"Accept": OCTETS})
        self.assertEqual(stream.read1(), b"one\n")
        client.expect(200, "POST", process + "/stdin", b"\n", headers={"Content-Type": OCTETS})
        self.assertEqual(stream.read(), b"two\n")


class Complaints(StreamTest):
    """What users of others have met (session-apis.md §3), by the number of its thread."""

    @as_shipped
    def test_cloudflare_873_and_320_a_stream_does_not_end_with_an_exit_that_was_made_up(self):
        client = self.streams()
        session = client.session()
        process = client.start(session, "exec 1>&- 2>&-; sleep 1; exit 7")
        lines = client.lines(process + "/output?follow=true")
        self.assertEqual([line["type"] for line in lines], ["end"], "its streams are closed long before")
        self.assertEqual(lines[0]["exit_code"], 7)

    @as_shipped
    def test_cloudflare_101_a_stream_of_a_session_that_is_ended_tells_how_and_does_not_hang(self):
        client = self.streams()
        session = client.session()
        process = client.start(session, "echo up; sleep 1000")
        stream = client.open("GET", process + "/output?follow=true")
        stream.readline()
        client.call("DELETE", session)
        lines = [json.loads(line) for line in stream.read().splitlines()]
        self.assertEqual(lines[-1]["type"], "end")
        self.assertNotEqual(lines[-1]["cause"], "exited")

    @as_shipped
    def test_e2b_1352_a_reader_who_comes_back_gets_more_than_one_piece(self):
        client = self.streams()
        process = client.start(client.session(), "for i in $(seq 20000); do echo line $i; done")
        first = client.open("GET", process + "/output?follow=true&stream=stdout")
        line = json.loads(first.readline())
        first.connection.close()
        at = line["offset"] + len(line["text"])
        lines = client.lines(f"{process}/output?follow=true&stream=stdout&offset={at}")
        self.assertEqual(line["text"] + text_of(lines), "".join(f"line {i}\n" for i in range(1, 20001)))

    @as_shipped
    def test_managoat_691_every_reader_gets_all_of_it_from_the_first_byte(self):
        client = self.streams()
        process = client.start(client.session(), "for i in $(seq 3000); do echo line $i; done; sleep 0.5")
        wanted = "".join(f"line {i}\n" for i in range(1, 3001))
        for _ in range(5):
            self.assertEqual(text_of(client.lines(process + "/output?follow=true")), wanted)

    @as_shipped
    def test_daytona_4558_what_a_program_prints_is_never_taken_for_a_marker(self):
        client = self.streams()
        said = r'{"type":"end","record":{}}\n\001\001\001\ndata: x\n\nevent: end\n'
        process = client.ran(client.session(), f"printf '{said}'; printf '{said}' >&2; exit 4")
        wanted = said.replace(r"\n", "\n").replace(r"\001", "\x01")
        lines = client.lines(process + "/output")
        self.assertEqual((text_of(lines), text_of(lines, "stderr")), (wanted, wanted))
        events, _ = events_of(client.call("GET", process + "/output", headers={"Accept": EVENTS}).body)
        self.assertEqual([name for name, *_ in events].count("end"), 1)
        self.assertEqual(text_of([data for *_, data in events]), wanted)

    @as_shipped
    def test_e2b_fan_out_a_reader_who_stalls_holds_up_neither_the_program_nor_other_readers(self):
        client = self.streams()
        session = client.session()
        process = client.start(session, "read go; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last",
                               stdin="open")
        stalled = [client.open("GET", process + "/output?follow=true") for _ in range(20)]
        client.expect(200, "POST", process + "/stdin", b"\n", headers={"Content-Type": OCTETS})
        self.assertEqual(client.wait(process)["exit_code"], 0)
        lines = client.lines(process + "/output")
        self.assertTrue(text_of(lines[-2:]).endswith("last\n"))
        met = [json.loads(line) for line in stalled[0].read().splitlines()]
        self.assertIn("gap", {line["type"] for line in met})
        self.assertEqual(met[-1]["type"], "end")


class Connections(StreamTest):
    """What becomes of a connection beside and after an answer that is written piece by piece."""

    @as_shipped
    def test_a_connection_serves_further_requests_after_a_stream_a_range_and_a_head(self):
        client = self.streams()
        process = client.ran(client.session(), "echo one")
        connection = client.connection()
        self.addCleanup(connection.close)
        for method, headers in (("GET", {}), ("HEAD", {}), ("GET", {"Accept": OCTETS, "Range": "bytes=1-2"}),
                                ("HEAD", {"Accept": OCTETS}), ("GET", {"Accept": EVENTS})):
            connection.request(method, process + "/output?stream=stdout&follow=true" * (method == "GET" and not headers),
                               headers=client.headers(headers))
            sock = connection.sock
            answer = connection.getresponse()
            body = answer.read()
            self.assertIn(answer.status, (200, 206))
            self.assertEqual(body == b"", method == "HEAD")
            self.assertIs(connection.sock, sock, "the connection is kept")

    @as_shipped
    def test_a_peer_that_vanishes_in_the_middle_of_a_stream_leaves_nothing_behind(self):
        client = self.streams()
        process = client.start(client.session(), "while echo x; do sleep 0.01; done")
        for _ in range(10):
            stream = client.open("GET", process + "/output?follow=true")
            stream.readline()
            stream.connection.close()
        def connections():
            answer = client.call("GET", "/metrics")
            return [line for line in answer.body.decode().splitlines() if "connections" in line and line[0] != "#"]
        self.assertTrue(wait_until(lambda: connections() and connections()[0].endswith(" 1")), connections())
        self.assertEqual(client.expect(200, "GET", process)["state"], "running", "disconnecting changes nothing")


if __name__ == "__main__":
    main()
