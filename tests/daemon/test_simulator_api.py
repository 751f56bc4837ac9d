"""The agent simulator's API: tokens, statuses and shapes, as its clients' own tests have them."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import TOKEN, TOKEN_HEADER, DaemonTest, as_shipped, new_id, wait_until
from harness import callers, main

BAD_TOKENS = (None, "", "wrong", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), "a" * 20000)


class Tokens(DaemonTest):

    @callers("five", "root", "user")
    def test_valid_token_gives_health_200_with_sandbox_ok(self):
        answer = self.daemon().request("GET", "/health")
        self.assertEqual(answer.status, 200)
        health = answer.json()
        self.assertEqual((health["status"], health["sandbox"], health["sessions"]), ("ok", "ok", 0))
        self.assertGreaterEqual(health["sandbox_age_s"], 0)

    @as_shipped
    def test_none_wrong_and_empty_token_give_401_on_every_route(self):
        daemon = self.daemon()
        session = daemon.session()
        routes = (("GET", "/health"), ("POST", "/sessions"), ("GET", f"/sessions/{session}/files"),
                  ("DELETE", f"/sessions/{session}"), ("GET", "/nowhere"), ("GET", "/metrics"))
        for token in BAD_TOKENS:
            for method, path in routes:
                answer = daemon.request(method, path, token=token)
                self.assertIn(answer.status, (401,) if len(token or "") < 10000 else (401, 431), f"{method} {path} {token!r}")
        twice = f"{TOKEN_HEADER}: {TOKEN}\r\n" * 2
        self.assertIn(b" 401 ", daemon.send_raw(f"GET /health HTTP/1.1\r\nHost: a\r\n{twice}\r\n".encode(), timeout=1))
        self.assertEqual(daemon.files(session).status, 200, "the session has not been touched")

    @as_shipped
    def test_blanks_around_a_token_do_not_count_and_it_may_come_as_bearer(self):
        daemon = self.daemon(token=f" {TOKEN}\n")
        self.assertEqual(daemon.request("GET", "/health", token=TOKEN).status, 200)
        self.assertEqual(daemon.request("GET", "/health", token=TOKEN + "  ").status, 200)
        bearer = {"Authorization": f"bearer {TOKEN}"}
        self.assertEqual(daemon.request("GET", "/health", token=None, headers=bearer).status, 200)
        for wrong in (f"Basic {TOKEN}", TOKEN, "Bearer", f"Bearer {TOKEN}x"):
            refused = daemon.request("GET", "/health", token=None, headers={"Authorization": wrong})
            self.assertEqual(refused.status, 401, wrong)

    @as_shipped
    def test_token_unset_gives_503_with_and_without_header(self):
        for variables in ({}, {"AGENT_SIMULATOR_API_TOKEN": ""}, {"AGENT_SIMULATOR_API_TOKEN": "  "}):
            daemon = self.daemon(token=None, variables=variables)
            for token in (None, "", TOKEN):
                self.assertEqual(daemon.request("GET", "/health", token=token).status, 503)
                self.assertEqual(daemon.request("POST", "/sessions", {}, token=token).status, 503)
                self.assertEqual(self.refused_upgrade(daemon, f"/sessions/{new_id()}/ws", token), 403)
            self.assertIn("no token is configured", daemon.log)
            self.check_that_it_ends(daemon)

    @as_shipped
    def test_websocket_without_and_with_a_wrong_token_is_never_accepted(self):
        daemon = self.daemon()
        session = daemon.session()
        for token in (None, "", "wrong"):
            self.assertEqual(self.refused_upgrade(daemon, f"/sessions/{session}/ws", token), 403)
        self.assertEqual(self.refused_upgrade(daemon, f"/sessions/{session}/ws", TOKEN), 101)
        refused = self.refused_upgrade(daemon, "/nowhere", TOKEN)
        self.assertEqual(refused, 403, "and neither is one on an unknown path")

    @as_shipped
    def test_websocket_with_token_of_an_unknown_session_is_accepted_and_closed_with_4004(self):
        daemon = self.daemon()
        frames, code = daemon.relay(new_id()).rest()
        self.assertEqual([json.loads(frame) for frame in frames], [{"type": "error", "message": "Session not found"}])
        self.assertEqual(code, 4004)
        frames, code = daemon.relay("no-uuid").rest()
        self.assertEqual([json.loads(frame) for frame in frames], [{"type": "error", "message": "Invalid session id"}])
        self.assertEqual(code, 4400)

    @as_shipped
    def test_a_browser_is_refused_whatever_its_origin(self):
        daemon = self.daemon()
        session = daemon.session()
        for origin in ("http://evil.example", "null", "http://localhost:8001"):
            head = (f"GET /sessions/{session}/ws HTTP/1.1\r\nHost: a\r\n{TOKEN_HEADER}: {TOKEN}\r\nOrigin: {origin}\r\n"
                    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
            self.assertTrue(daemon.send_raw(head.encode(), timeout=2).startswith(b"HTTP/1.1 403 "), origin)
        self.assertTrue(daemon.send_raw(head.replace(f"Origin: {origin}\r\n", "").encode(), timeout=1)
                        .startswith(b"HTTP/1.1 101 "), "without one it is accepted")


class Routes(DaemonTest):

    @as_shipped
    def test_openapi_json_and_other_unknown_paths_are_404(self):
        daemon = self.daemon()
        for path in ("/openapi.json", "/docs", "/redoc", "/", "/sessions/a/b/c", f"/sessions/{new_id()}/ws", "//health"):
            self.assertEqual(daemon.request("GET", path).status, 404, path)

    @as_shipped
    def test_wrong_methods_are_405_with_what_is_allowed(self):
        daemon = self.daemon()
        for method, path, allowed in (("GET", "/sessions", "POST"), ("POST", "/health", "GET"), ("HEAD", "/health", "GET"),
                                      ("GET", f"/sessions/{new_id()}", "DELETE"),
                                      ("POST", f"/sessions/{new_id()}/files", "GET")):
            answer = daemon.request(method, path)
            self.assertEqual((answer.status, answer.headers["allow"]), (405, allowed), f"{method} {path}")
        moved = daemon.request("POST", "/sessions/", {})
        self.assertEqual((moved.status, moved.headers["location"]), (307, "/sessions"))

    @as_shipped
    def test_traversal_as_session_id_is_400(self):
        daemon = self.daemon()
        self.assertEqual(daemon.create(session_id="../../etc").status, 400)
        self.assertEqual(daemon.delete("..%2F..%2Fetc").status, 400)
        self.assertEqual(daemon.files("..%2F..%2Fetc").status, 400)

    @as_shipped
    def test_a_body_of_the_wrong_shape_is_422_and_does_not_echo_it(self):
        daemon = self.daemon()
        secret = "sk-very-secret"
        for members in ({"env_vars": {"OPENAI_API_KEY": [secret]}}, {"support_files": {"a": {"b": secret}}},
                        {"agent_code": None}, {"event_list": secret}, {"workspace_paths": None}):
            answer = daemon.create(**{"code": "", **members}) if "agent_code" not in members else daemon.create(None)
            self.assertEqual(answer.status, 422, repr(answer))
            self.assertNotIn(secret.encode(), answer.body)
            problem = answer.json()["detail"][0]
            self.assertEqual(set(problem), {"type", "loc", "msg"})
        self.assertEqual(daemon.request("POST", "/sessions", b"{}", headers={"Content-Type": "text/plain"}).status, 422)
        self.assertNotIn(secret, daemon.log)

    @as_shipped
    def test_value_errors_are_400(self):
        daemon = self.daemon()
        for members, text in (({"config": "a: ["}, "YAML"), ({"config": "[1]"}, "mapping"), ({"config": "platforms: null"}, "mapping"),
                              ({"support_files": {"../escape.py": ""}}, "workspace"), ({"workspace_paths": [".."]}, "workspace"),
                              ({"env_vars": {"OPENAI_API_KEY": "a\0b"}}, "NUL"), ({"support_files": {"a\0b": ""}}, "NUL"),
                              ({"session_id": "x"}, "UUID")):
            answer = daemon.create(**members)
            self.assertEqual(answer.status, 400, f"{members} {answer}")
            self.assertIn(text, answer.json()["detail"])
        self.assertEqual(daemon.health()["sessions"], 0)


class Refusals(DaemonTest):

    @as_shipped
    def test_sandbox_unavailable_is_503_and_its_detail_is_not_in_the_response(self):
        policy = self.make_file("policy.json", json.dumps(
            {"version": 1, "extends": ["builtin:agent@1"],
             "filesystem": {"mounts": {"/secret-place": {"type": "bind", "source": "/no-such-secret-source"}}}}))
        daemon = self.daemon(f"--session-policy={policy}")
        answer = daemon.create()
        self.assertEqual(answer.status, 503, repr(answer))
        self.assertNotIn(b"secret", answer.body)
        self.assertTrue(wait_until(lambda: "no-such-secret-source" in daemon.log), "the log has it")
        self.assertEqual(daemon.health()["sessions"], 0, "and the slot is returned")
        self.assertEqual(daemon.workspaces(), [], "and nothing was written")

    @as_shipped
    def test_a_command_that_cannot_be_executed_is_500_and_says_nothing_of_the_host(self):
        broken = self.make_file("broken-secret", "#!/no-such-interpreter\n", mode=0o755)
        daemon = self.daemon(variables={"AGENT_SIMULATOR_COMMAND": f"{broken} agent.py"})
        answer = daemon.create()
        self.assertEqual(answer.status, 500, repr(answer))
        self.assertNotIn(b"secret", answer.body)
        self.assertEqual(daemon.health()["sessions"], 0)

    @as_shipped
    def test_capacity_is_429_and_a_freed_slot_is_used_again(self):
        daemon = self.daemon(variables={"AGENT_SIMULATOR_MAX_SESSIONS": "2"})
        first, second = daemon.session(), daemon.session()
        full = daemon.create()
        self.assertEqual(full.status, 429, repr(full))
        self.assertIn("maximum concurrent sessions (2)", full.json()["detail"])
        self.assertTrue(full.headers["retry-after"])
        self.assertEqual(daemon.delete(first).status, 200)
        daemon.session()
        self.assertEqual(daemon.files(second).status, 200)

    @as_shipped
    def test_duplicate_id_is_400_already_exists_in_any_spelling(self):
        daemon = self.daemon()
        session = daemon.session()
        for spelling in (session, session.upper(), "{%s}" % session, session.replace("-", "")):
            answer = daemon.create(session_id=spelling)
            self.assertEqual(answer.status, 400)
            self.assertIn("already exists", answer.json()["detail"])


if __name__ == "__main__":
    main()
