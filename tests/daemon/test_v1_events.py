"""GET /v1/events: what happened to sessions, in order, with ids to go on from."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import as_shipped
from harness import callers, main
from streams import StreamTest


class Told(StreamTest):

    @callers("five", "user")
    def test_a_session_and_its_processes_are_told_from_their_start_to_their_end(self):
        client = self.streams()
        session = client.session()
        client.ran(session, "exit 3")
        client.call("DELETE", session)
        name = session.rsplit("/", 1)[1]
        lines = client.lines(f"/v1/events?session={name}")
        self.assertEqual(lines.pop()["type"], "heartbeat")
        self.assertEqual([(line["type"], line.get("process")) for line in lines],
                         [("session.starting", None), ("session.running", None), ("process.started", 1),
                          ("process.ended", 1), ("session.ending", None), ("session.ended", None)])
        self.assertEqual(lines[3]["record"]["exit_code"], 3)
        self.assertEqual({line["session"] for line in lines}, {name})
        self.assertEqual([line["id"] for line in lines], sorted(line["id"] for line in lines))

    @as_shipped
    def test_after_an_id_only_what_is_newer_comes_and_following_waits_for_it(self):
        client = self.streams()
        session = client.session()
        last = client.lines("/v1/events")[-1]["last"]
        stream = client.open("GET", f"/v1/events?after={last}&follow=true")
        newest = client.open("GET", "/v1/events?after=last&follow=true", headers={"Accept": "text/event-stream"})
        client.start(session, "true")
        self.assertEqual(json.loads(stream.readline())["id"], last + 1)
        self.assertEqual(newest.readline(), b"event: process.started\n")
        self.assertEqual(newest.readline(), f"id: {last + 1}\n".encode())
        newest.connection.close()
        again = client.call("GET", "/v1/events?after=last", headers={
            "Accept": "text/event-stream", "Last-Event-ID": str(last)})
        self.assertTrue(again.body.startswith(f"event: process.started\nid: {last + 1}\n".encode()))

    @as_shipped
    def test_an_id_of_another_daemon_s_is_said_to_be_none_of_this_one_s(self):
        client = self.streams()
        client.session()
        lines = client.lines("/v1/events?after=1000000")
        self.assertEqual(lines[0]["type"], "reset")
        self.assertEqual(lines[1]["id"], 1)

    @as_shipped
    def test_queries_and_forms_that_mean_nothing_are_refused(self):
        client = self.streams()
        for query in ("after=first", "after=-1", "follow=2", "since=1"):
            client.problem(422, "invalid", "GET", "/v1/events?" + query)
        client.problem(406, "not_acceptable", "GET", "/v1/events", headers={"Accept": "application/json"})
        client.problem(405, "method_not_allowed", "POST", "/v1/events")


if __name__ == "__main__":
    main()
