"""The shipped configurations of nginx and HAProxy, by the real ones: directly before belljard, and before a backend
that relays to it. Each is the file in container/proxy with nothing but its addresses replaced."""

import asyncio
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "daemon"))
import websockets
from daemon import TOKEN, TOKEN_HEADER, DaemonTest, Relay, as_shipped, free_port, wait_until
from harness import ROOT, main, once

PROXY = ROOT / "container" / "proxy"
NGINX = """
daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr warn; worker_rlimit_nofile 512;
events {{ worker_connections 200; }}
http {{
  access_log off;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  {text}
}}
"""


class Stub:
    """A backend, or a worker: says who it is and which path it got, and relays the simulation's WebSocket."""

    def __init__(self, name, belljard=None):
        self.name, self.belljard, self.port = name, belljard, free_port()
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self.serve(),))
        self.thread.start()
        self.ready.wait(20)

    async def serve(self):
        self.end = asyncio.Event()
        async with websockets.serve(self.relay, "127.0.0.1", self.port, process_request=self.plain):
            self.ready.set()
            await self.end.wait()

    async def plain(self, path, headers):
        if "Upgrade" in headers and re.fullmatch(r"/besser_api/simulation/[^/]+/ws", path):
            return None
        # As the real one: a handshake that arrives as a GET is not found.
        status = 404 if path.endswith("/ws") else 200
        return http.HTTPStatus(status), [("Content-Type", "application/json")], json.dumps({"name": self.name, "path": path}).encode()

    async def relay(self, editor, path):
        session = path.split("/")[3]
        url = f"ws://127.0.0.1:{self.belljard.port}/sessions/{session}/ws"
        async with websockets.connect(url, extra_headers={TOKEN_HEADER: TOKEN}) as agent:
            async def pass_on(source, target):
                async for message in source:
                    await target.send(message)
            done, left = await asyncio.wait([asyncio.create_task(pass_on(editor, agent)),
                                             asyncio.create_task(pass_on(agent, editor))],
                                            return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()

    def close(self):
        self.loop.call_soon_threadsafe(self.end.set)
        self.thread.join()
        self.loop.close()


class Readiness:
    """As much of belljard as a balancer asks: it serves, and admits or does not. Without HAProxy's token: 401."""

    def __init__(self):
        owner, self.admits = self, True

        class Answer(http.server.BaseHTTPRequestHandler):
            def answer(self, status):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                if self.request_version != "HTTP/1.1":  # As belljard does.
                    return self.answer(505)
                if self.path.startswith("/readyz") and self.headers["Authorization"] != f"Bearer {TOKEN}":
                    return self.answer(401)
                self.answer(503 if self.path == "/readyz?admit=1" and not owner.admits else 200)

            def do_POST(self):
                self.answer(201)

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class ProxyTest(DaemonTest):
    def proxy(self, name, addresses, change=lambda text: text):
        """The port of the proxy with the configuration `name`, each of `addresses` replaced by a port."""
        port = free_port()
        text = (PROXY / name).read_text()
        text = re.sub(r"(listen |bind :)(80|443)\b", rf"\g<1>127.0.0.1:{port}", text).replace("bind :127", "bind 127")
        for address, target in addresses.items():
            text = text.replace(address, f"127.0.0.1:{target}")
        text = change(text)
        path = self.dir / f"{name}-{port}"
        if name.startswith("nginx"):
            (self.dir / "temporary").mkdir(exist_ok=True)
            path.write_text(NGINX.format(dir=self.dir / "temporary", text=text))
            command = ["nginx", "-c", path]
        else:
            path.write_text(text)
            command = ["haproxy", "-db", "-f", path]
        log = open(self.dir / f"proxy-{port}.log", "wb")
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                   env={"PATH": os.environ["PATH"], "BELLJAR_PROXY_TOKEN": TOKEN})
        log.close()
        def stop():
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        self.addCleanup(stop)
        self.assertTrue(wait_until(lambda: is_open(port) or process.poll() is not None, 20))
        self.assertIsNone(process.poll(), pathlib.Path(log.name).read_text())
        return port

    def get(self, port, path, headers=None, method="GET", body=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def editor(self, port, session):
        relay = Relay(f"ws://127.0.0.1:{port}/besser_api/simulation/{session}/ws", {})
        self.addCleanup(relay.close)
        return relay

    def stubs(self, daemon):
        backend, worker = Stub("backend", daemon), Stub("worker")
        self.addCleanup(backend.close)
        self.addCleanup(worker.close)
        return {"127.0.0.1:9000": backend.port, "127.0.0.1:9001": worker.port}


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class BeforeTheBackend(ProxyTest):
    def check_paths(self, port):
        for path, expected in (("/besser_api/", "backend"), ("/besser_api/limits", "backend"),
                               ("/besser_api/transform-agent-model-json", "backend"),
                               ("/besser_api/spec-driven/config", "worker"),
                               ("/besser_api/spec-driven/runs/1", "worker"),
                               ("/besser_api/spec-driven/push-to-github", "backend"),
                               ("/besser_api/spec-driven/import-github-run", "backend")):
            with self.subTest(path=path):
                status, body, _ = self.get(port, path)
                self.assertEqual((status, json.loads(body)), (200, {"name": expected, "path": path}))
        self.assertEqual(self.get(port, "/elsewhere")[0], 404)

    def check_talk(self, port, daemon):
        session = daemon.session()
        editor = self.editor(port, session)
        self.assertEqual(editor.answer_to("hello"), "echo hello")
        editor.close()
        self.assertEqual(daemon.delete(session).status, 200)

    @as_shipped
    def test_nginx_sends_each_path_to_whose_it_is_and_relays_the_editor_to_its_agent(self):
        daemon = self.daemon()
        port = self.proxy("nginx-backend.conf", self.stubs(daemon))
        self.check_paths(port)
        self.check_talk(port, daemon)

    @as_shipped
    def test_haproxy_does_the_same(self):
        daemon = self.daemon()
        port = self.proxy("haproxy-backend.cfg", self.stubs(daemon))
        self.check_paths(port)
        self.check_talk(port, daemon)

    @as_shipped
    def test_without_nginxs_location_for_it_the_handshake_is_a_get_and_not_found(self):
        """The negative control."""
        daemon = self.daemon()
        def without_location(text):
            return re.sub(r"  location ~ [^}]*ws\$ \{.*?\n  \}\n", "", text, flags=re.S)
        port = self.proxy("nginx-backend.conf", self.stubs(daemon), without_location)
        session = daemon.session()
        with self.assertRaises(websockets.InvalidStatusCode) as refused:
            self.editor(port, session)
        self.assertEqual(refused.exception.status_code, 404)
        self.assertEqual(daemon.delete(session).status, 200)


class BeforeBelljard(ProxyTest):
    def check_round_trip(self, port, daemon):
        token = {TOKEN_HEADER: TOKEN}
        self.assertEqual(self.get(port, "/health", token)[0], 200)
        self.assertEqual(self.get(port, "/health", {TOKEN_HEADER: "wrong"})[0], 401)
        session = daemon.session()
        relay = Relay(f"ws://127.0.0.1:{port}/sessions/{session}/ws", token)
        self.addCleanup(relay.close)
        self.assertEqual(relay.answer_to("hello"), "echo hello")
        self.assertEqual(len(relay.answer_to("size 300000")), 300000)
        relay.close()
        self.assertEqual(self.get(port, f"/sessions/{session}", token, "DELETE")[0], 200)

    @as_shipped
    def test_through_nginx_a_session_is_talked_to_and_ended(self):
        daemon = self.daemon()
        self.check_round_trip(self.proxy("nginx-belljard.conf", {"127.0.0.1:8001": daemon.port}), daemon)

    @as_shipped
    def test_through_haproxy_a_session_is_talked_to_and_ended(self):
        daemon = self.daemon()
        # A daemon with the simulator's face alone has its /health for the balancer.
        port = self.proxy("haproxy-belljard.cfg", {"127.0.0.1:8001": daemon.port}, lambda text: text.replace(
            'uri /readyz ver HTTP/1.1 hdr Host 127.0.0.1 hdr Authorization "Bearer ',
            f'uri /health ver HTTP/1.1 hdr Host 127.0.0.1 hdr {TOKEN_HEADER} "'))
        self.assertTrue(wait_until(lambda: self.get(port, "/health", {TOKEN_HEADER: TOKEN})[0] == 200, 20))
        self.check_round_trip(port, daemon)

    @once
    def test_through_haproxy_a_creation_waits_for_room_and_everything_else_goes_on(self):
        belljard = Readiness()
        self.addCleanup(belljard.close)
        port = self.proxy("haproxy-belljard.cfg", {"127.0.0.1:8001": belljard.server.server_port})

        def create():
            return self.get(port, "/v1/sessions", method="POST", body="{}")

        def by_haproxy(answer):
            return answer[0] == 503 and answer[2].get("Retry-After") == "5" and b"no room now" in answer[1]
        self.assertTrue(wait_until(lambda: create()[0] == 201, 20), "a creation is never let through")
        belljard.admits = False
        self.assertTrue(wait_until(lambda: by_haproxy(create()), 20), create())
        self.assertEqual(self.get(port, "/v1/sessions")[0], 200)
        self.assertEqual(self.get(port, "/v1/sessions/1/exec", method="POST", body="{}")[0], 201)
        belljard.admits = True
        self.assertTrue(wait_until(lambda: create()[0] == 201, 20), "a creation is not let through again")

    @as_shipped
    def test_metrics_are_for_this_host_alone(self):
        daemon = self.daemon()
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        for name in ("nginx-belljard.conf", "haproxy-belljard.cfg"):
            with self.subTest(name=name):
                port = self.proxy(name, {"127.0.0.1:8001": daemon.port})
                self.assertNotEqual(self.get(port, "/metrics", bearer)[0], 403)
                elsewhere = self.proxy(name, {"127.0.0.1:8001": daemon.port}, lambda text: text.replace(
                    "allow 127.0.0.1", "allow 127.9.9.9").replace("src 127.0.0.1", "src 127.9.9.9"))
                self.assertEqual(self.get(elsewhere, "/metrics", bearer)[0], 403)


if __name__ == "__main__":
    main()
