"""HTTP handlers of the fake API server: the client's few paths, with streaming watches and logs."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fake_api import KINDS, FakeApi, Fault, Json, failure, fits, table
from merge_patch import merged

PATH = re.compile(
    r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)


class Handler(BaseHTTPRequestHandler):
    """Handles one request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """Without this, each response waits 40 ms for the delayed acknowledgement of its headers."""
    server: Server

    def setup(self) -> None:
        super().setup()
        self.api = self.server.api

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        with self.api.changed:
            self.api.requests.append((self.command, self.path))
        if (fault := self.api.take_fault(self.command, self.path)) is not None:
            self._fault(fault)
            return
        url = urlsplit(self.path)
        found, query = PATH.fullmatch(url.path), dict(parse_qsl(url.query))
        if found is None or found["resource"] not in KINDS:
            self._answer(404, text="404 page not found\n")
            return
        namespace, resource, name, sub = found["namespace"], found["resource"], found["name"], found["sub"]
        if sub == "log":
            self._log(name, query)
        elif query.get("watch"):
            self._watch(resource, namespace, query)
        elif name is None:
            self._collection(resource, namespace, query, body)
        else:
            self._one(resource, namespace, name, sub, body)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

    def _collection(self, resource: str, namespace: str | None, query: dict[str, str], body: Json) -> None:
        api = self.api
        if self.command == "POST":
            name = body["metadata"].get("name") or body["metadata"]["generateName"] + "x7k2p"
            made = {**body, "metadata": {**body["metadata"], "name": name}}
            if (namespace, name) in api.objects[resource]:
                self._answer(409, failure(409, "AlreadyExists", f'{resource} "{name}" already exists'))
            else:
                self._answer(201, made if query.get("dryRun") else api.put(resource, made))
            return
        items = api.selected(resource, namespace, query)
        if "as=Table" in self.headers["Accept"]:
            self._answer(200, table(items))
            return
        start, limit = int(query.get("continue") or 0), int(query.get("limit") or 10**6)
        metadata = {"resourceVersion": str(api.version)}
        if len(items) > start + limit:
            metadata["continue"] = str(start + limit)
        version, kind = KINDS[resource]
        bare = [{k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in items]
        found = {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata}
        self._answer(200, {**found, "items": bare[start : start + limit]})

    def _one(self, resource: str, namespace: str, name: str, sub: str | None, body: Json) -> None:
        api = self.api
        item = api.objects[resource].get((namespace, name))
        if item is None and not (self.command == "PATCH" and resource == "configmaps"):
            missing = failure(404, "NotFound", f'{resource} "{name}" not found', name=name, kind=resource)
            self._answer(404, missing)
        elif self.command == "GET":
            self._answer(200, table([item]) if "as=Table" in self.headers["Accept"] else item)
        elif self.command == "DELETE":
            api.remove(resource, name, namespace)
            self._answer(200, {"kind": "Status", "status": "Success"})
        elif sub == "scale":
            change = {"spec": {"sampler": {"replicas": body["spec"]["replicas"]}}}
            self._answer(200, api.put(resource, merged(item, change)))
        else:
            self._answer(200, api.put(resource, merged(item, body)))

    def _watch(self, resource: str, namespace: str | None, query: dict[str, str]) -> None:
        api, since = self.api, int(query["resourceVersion"])
        with api.stream() as number:
            self._begin()
            if since < api.expired:
                gone = failure(410, "Expired", f"too old resource version: {since} ({api.expired})")
                self._chunk(json.dumps({"type": "ERROR", "object": gone}))
                self._end()
                return
            deadline = time.monotonic() + int(query["timeoutSeconds"]) * api.second
            while time.monotonic() < deadline:
                news = api.await_news(resource, since, number, deadline - time.monotonic())
                if news is None:
                    self.close_connection = True
                    return
                for version, kind, item in news:
                    since = version
                    if namespace in (None, item["metadata"]["namespace"]) and fits(item, query):
                        self._chunk(json.dumps({"type": kind, "object": item}))
            self._end()

    def _log(self, pod: str, query: dict[str, str]) -> None:
        api = self.api
        item = api.objects["pods"].get(("default", pod))
        if item is None:
            self._answer(404, failure(404, "NotFound", f'pods "{pod}" not found', name=pod, kind="pods"))
            return
        container = _container(item, query) if (item.get("spec") or {}).get("nodeName") else "none"
        if container is None:
            said = f'container "{query["container"]}" in pod "{pod}" is waiting to start: ContainerCreating'
            if query.get("previous"):
                said = f'previous terminated container "{query["container"]}" in pod "{pod}" not found'
            self._answer(400, failure(400, "BadRequest", said))
            return
        with api.stream() as number:
            self._begin()
            sent = max(0, len(api.logs[container]) - int(query["tailLines"])) if "tailLines" in query else 0
            over = False
            while not over:
                news = api.await_lines(container, sent, number, follow="follow" in query)
                if news is None:
                    self.close_connection = True
                    return
                lines, over = news
                sent += len(lines)
                for moment, text in lines:
                    if moment >= query.get("sinceTime", ""):
                        self._chunk(f"{moment} {text}" if query.get("timestamps") else text)
            self._end()

    def _fault(self, fault: Fault) -> None:
        if fault.text:
            self._answer(404, text=fault.text)
        elif fault.status is None:
            self.close_connection = True
        else:
            self._answer(fault.status["code"], fault.status)

    def _answer(self, code: int, document: Any = None, text: str = "") -> None:
        body = (text or json.dumps(document)).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def _chunk(self, line: str) -> None:
        data = f"{line}\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


def _container(pod: Json, query: dict[str, str]) -> str | None:
    """Returns the id of the container whose log is requested."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        if container["name"] == query["container"]:
            last = ((container.get("lastState") or {}).get("terminated") or {}).get("containerID")
            state = container.get("state") or {}
            if query.get("previous"):
                return last
            return container.get("containerID") if "waiting" not in state else last
    return None


class Server(ThreadingHTTPServer):
    """Serves `api`, which each test replaces, and ignores clients that hang up."""

    daemon_threads = True
    api: FakeApi

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    """Yields a running server."""
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
