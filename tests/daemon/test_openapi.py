"""Every operation of the OpenAPI document, asked of a running daemon; every answer is what it says."""

import json
import pathlib
import re
import sys

import jsonschema

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import main
from v1 import V1Test, as_shipped

OCTETS = {"Content-Type": "application/octet-stream"}


class Document:
    def __init__(self, tree):
        self.tree, self.asked = tree, set()
        self.operations = {operation["operationId"]: (method.upper(), path, operation)
                           for path, methods in tree["paths"].items() for method, operation in methods.items()}

    def schema(self, schema):
        return {**schema, "components": self.tree["components"]}

    def check(self, test, name, answer):
        """Whether an answer is one of those that its operation has."""
        responses = self.operations[name][2]["responses"]
        described = responses.get(str(answer.status)) or responses.get(f"{answer.status // 100}XX")
        if described is None:
            test.assertGreaterEqual(answer.status, 400, f"{name}: {answer} is not described")
            described = responses["default"]
        content = described.get("content")
        if content is None:
            return test.assertTrue(answer.status in (101, 204, 304) or name.startswith("proxy"), name)
        kind = answer.headers["content-type"].split(";")[0]
        test.assertIn(kind, content, name)
        schema = content[kind].get("schema")
        if not schema or not kind.endswith("json"):
            return None
        for text in answer.body.splitlines() if kind == "application/x-ndjson" else [answer.body]:
            jsonschema.Draft202012Validator(self.schema(schema), format_checker=jsonschema.FormatChecker()).validate(
                json.loads(text))
        return None


class Driver:
    """Calls operations by their names."""

    def __init__(self, test, v1):
        self.test, self.v1 = test, v1
        answer = v1.call("GET", "/v1/openapi.json")
        test.assertEqual(answer.status, 200)
        self.document = Document(answer.json())

    def call(self, name, status, body=None, query="", headers=None, **parts):
        method, path, operation = self.document.operations[name]
        for part, value in parts.items():
            path = path.replace("{" + part + "}", str(value))
        self.test.assertNotIn("{", path, f"{name}: a part of its path has no value")
        if body is not None and "requestBody" in operation and "application/json" in operation["requestBody"]["content"]:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            jsonschema.Draft202012Validator(self.document.schema(schema)).validate(body)
        answer = self.v1.call(method, path + query, body, headers)
        self.test.assertEqual(answer.status, status, f"{name}: {answer}")
        self.document.check(self.test, name, answer)
        self.document.asked.add(name)
        kind = answer.headers["content-type"] or ""
        return answer.json() if answer.body and "json" in kind and "ndjson" not in kind else answer


class OpenApi(V1Test):

    @as_shipped
    def test_every_operation_answers_as_the_document_says(self):
        work = self.make_directory("roots/work")
        v1 = self.v1(f"--workspace-root={self.dir / 'roots'}")
        driver = Driver(self, v1)
        call = driver.call
        workspace = {"path": str(work), "owner": "chown", "home": "beside", "remove": False}
        call("endSession", 204, session=call("createSession", 201, {"workspace": workspace})["id"])
        for name in ("livez", "readyz", "getVersion", "listPolicies", "getCapabilities", "getLimits", "getOpenApi"):
            call(name, 200)
        call("run", 200, {"shell": "echo hi; printf '\\xff' >&2", "policy": "builtin:validator@1"})
        session = call("createSession", 201, {
            "files": {"a": "x", "b": {"text": "y", "mode": "0600"}}, "labels": {"k": "v"}, "ttl": "1h", "idle": "30m",
            "limits": {"rlimits": {"nofile": 64}}})["id"]
        call("listSessions", 200, query="?label.k=v&state=running&limit=1")
        call("getSession", 200, session=session)
        call("patchSession", 200, {"labels": {"k": None}, "idle": None}, session=session)
        call("keepSession", 200, {"for": "2h"}, session=session)
        call("exec", 200, {"shell": "exit 3"}, session=session)
        call("exec", 201, {"shell": "true", "background": True}, session=session)
        call("exec", 202, {"shell": "sleep 600"}, query="?wait=100ms", session=session)
        process = call("startProcess", 201, {"argv": ["cat"], "stdin": "open"}, session=session)["id"]
        terminal = call("startProcess", 201, {"shell": "cat", "tty": {"cols": 80, "rows": 24}}, session=session)["id"]
        self.hold_a_lease(driver)
        call("runShellCommand", 200, {"shell": "cd /; export A=1"}, session=session)
        state = call("runShellCommand", 200, {"shell": "cd /tmp", "state": True}, session=session)["state"]
        call("runShellCommand", 200, {"shell": "true", "state": state}, session=session)
        call("run", 200, {"shell": "true", "state": state, "policy": "builtin:validator@1"})
        call("runShellCommand", 422, {"shell": "true", "state": "bm9uZQ=="}, session=session)
        call("runShellCommand", 201, {"shell": "true", "background": True}, session=session)
        call("listShellCommands", 200, session=session)
        call("listProcesses", 200, session=session)
        call("getProcess", 200, query="?wait=50ms", session=session, process=process)
        call("writeStdin", 200, b"typed", "?offset=0", OCTETS, session=session, process=process)
        call("closeStdin", 204, session=session, process=process)
        call("resizeTerminal", 204, {"cols": 100, "rows": 30}, session=session, process=terminal)
        self.read_streams(call, session, process, terminal)
        self.move_files(call, session)
        for method in ("Get", "Put", "Post", "Delete", "Patch", "Options"):
            call("proxy" + method, 502, session=session, port=9, path="")
        call("signalProcess", 204, {"signal": "KILL"}, session=session, process=terminal)
        call("endProcess", 204, session=session, process=process)
        call("endSession", 204, session=session)
        call("getSession", 200, session=session)
        self.refusals(driver, session)
        self.assertEqual(set(driver.document.operations) - driver.document.asked, set(), "never asked")

    def read_streams(self, call, session, process, terminal):
        """Of what has ended, and of what still runs."""
        names = {"session": session, "process": process}
        call("readOutput", 200, query="?follow=true", **names)
        call("readOutput", 200, session=session, process=terminal)
        call("readOutput", 200, query="?stream=stdout", headers={"Accept": "text/event-stream"}, **names)
        call("readOutput", 204, headers={"Accept": "text/event-stream", "Last-Event-ID": "end"}, **names)
        call("readOutput", 206, headers={"Accept": "application/octet-stream", "Range": "bytes=0-1"}, **names)
        call("readOutput", 422, query="?offset=1", **names)
        call("attach", 426, **names)
        call("readEvents", 200)
        call("readEvents", 200, query="?after=1000000")
        call("readEvents", 200, headers={"Accept": "text/event-stream"})

    def move_files(self, call, session):
        call("writeFile", 201, b"abc", "?mode=0640&parents=true", OCTETS, session=session, path="dir/caf%C3%A9")
        call("writeFile", 200, b"abcd", "", OCTETS, session=session, path="dir/caf%C3%A9")
        call("writeFile", 201, b"", "", OCTETS, session=session, path="%FF")
        etag = call("readFile", 200, session=session, path="dir/caf%C3%A9").headers["etag"]
        call("readFile", 304, headers={"If-None-Match": etag}, session=session, path="dir/caf%C3%A9")
        call("readFile", 206, headers={"Range": "bytes=1-"}, session=session, path="dir/caf%C3%A9")
        call("readFile", 200, query="?depth=3", session=session, path="")
        tar = call("readArchive", 200, query="?path=dir", session=session).body
        call("writeArchive", 204, tar, "", {"Content-Type": "application/x-tar"}, session=session)
        call("writeArchive", 415, b"", "", OCTETS, session=session)
        call("deleteFile", 204, query="?recursive=true", session=session, path="dir")
        call("deleteFile", 404, session=session, path="dir")

    def hold_a_lease(self, driver):
        """Its answer has no end, so its first line is read alone."""
        connection = driver.v1.connection()
        connection.request("POST", "/v1/leases", headers=driver.v1.headers())
        line = connection.getresponse().readline()
        connection.close()
        schema = driver.document.schema({"$ref": "#/components/schemas/LeaseLine"})
        jsonschema.Draft202012Validator(schema).validate(json.loads(line))
        driver.document.asked.add("holdLease")

    def refusals(self, driver, session):
        """Problems have their own shape, whatever they are about."""
        call = driver.call
        call("createSession", 422, {"labels": {"a": "b" * 300}})
        call("createSession", 404, {"policy": "nobody's"})
        call("run", 422, {"argv": ["/no/such"]})
        call("getSession", 404, session="nobody")
        call("exec", 409, {"shell": "true"}, session=session)
        call("listSessions", 422, query="?limit=0")

    @as_shipped
    def test_the_document_is_one(self):
        document = Driver(self, self.v1()).document.tree
        self.assertEqual(document["openapi"], "3.1.0")
        text = str(document)
        for reference in set(re.findall(r"'#/components/schemas/(\w+)'", text)):
            jsonschema.Draft202012Validator.check_schema(document["components"]["schemas"][reference])
        used = set(re.findall(r"'#/components/schemas/(\w+)'", text))
        self.assertEqual(used, set(document["components"]["schemas"]), "each schema is used, and none is missing")
        for path, methods in document["paths"].items():
            for operation in methods.values():
                named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
                self.assertEqual(named, set(re.findall(r"{(\w+)}", path)), path)


if __name__ == "__main__":
    main()
