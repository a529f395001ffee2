"""An API server in memory that misbehaves on request: slow, silent, full, forgetful, gone."""

from __future__ import annotations

import asyncio
import copy
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes import client
from merge_patch import merged
from rltraining_api.names import GROUP, KIND, PLURAL, VERSION
from rltraining_operator.kube import api as api_module
from rltraining_operator.kube.api import Api

Json = dict[str, Any]


def _resource(kind: str, plural: str, *, namespaced: bool = True) -> Json:
    verbs = ["get", "list", "watch", "create", "patch", "delete"]
    return {
        "kind": kind,
        "name": plural,
        "singularName": kind.lower(),
        "namespaced": namespaced,
        "verbs": verbs,
    }


def _group(name: str, version: str) -> Json:
    served = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [served], "preferredVersion": served}


DISCOVERY: dict[str, Json] = {
    "/api": {"versions": ["v1"]},
    "/api/v1": {
        "resources": [_resource("Namespace", "namespaces", namespaced=False), _resource("Event", "events")]
    },
    "/apis": {"groups": [_group(GROUP, VERSION), _group("apiextensions.k8s.io", "v1")]},
    f"/apis/{GROUP}/{VERSION}": {"resources": [_resource(KIND, PLURAL)]},
    "/apis/apiextensions.k8s.io/v1": {
        "resources": [_resource("CustomResourceDefinition", "customresourcedefinitions", namespaced=False)]
    },
}
"""Responses to the discovery requests that clients send first."""
TLS = ssl.create_default_context()
"""One context for all clients, because reading the machine's certificates took most of a test's time."""


@dataclass
class Fault:
    """A fault of the next `times` requests that match."""

    method: str
    """GET, POST, …, or WATCH."""
    path: str
    """A part of the path."""
    status: int = 0
    """Respond with this status; 0: none."""
    message: str = "injected"
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    """Delay in seconds before the response."""
    silent: bool = False
    """WATCH: accept the request and never send an event."""
    error: int = 0
    """WATCH: accept the request and send an ERROR event with this code; 0: none."""
    cut: bool = False
    """Break the connection off; a write takes effect before."""
    times: int = 1


class NoMeter:
    """Counts nothing."""

    def request(self, verb: str, resource: str, code: str, seconds: float) -> None: ...


class FakeApiServer:
    """Objects by path, with the lists, pages, watches, patches, preconditions and uids of a real server."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.tokens: list[str] = []
        """The Authorization header of each watch."""
        self.compacted = 0
        """Watches that start before this version get a 410."""
        self._version = 100
        self._uids = count(1)
        self._history: list[tuple[int, str, Json, str]] = []
        self._news = asyncio.Condition()
        self._streams: list[tuple[str, web.Request]] = []
        self._apis: list[Api] = []
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._server = TestServer(app)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[FakeApiServer]:
        """Serves within the block."""
        await self._server.start_server()
        try:
            with mock.patch.object(api_module, "_ssl_context", return_value=TLS):
                yield self
        finally:
            for api in self._apis:
                await api.close()
            await self._server.close()

    def api(self, **changes: Any) -> Api:
        """Returns a client of this server, which is closed with the server."""
        credentials = client.Configuration()
        credentials.host = self._url
        options = {"qps": 10_000.0, "burst": 10_000, "request_seconds": 2.0, "meter": NoMeter()} | changes
        self._apis.append(Api(credentials=credentials, **options))
        return self._apis[-1]

    def write_kubeconfig(self, path: Path, token: str = "one") -> None:
        """Writes a kubeconfig for this server."""
        parts = {
            "clusters": [{"name": "here", "cluster": {"server": self._url}}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "here", "user": "me"}}],
            "current-context": "it",
        }
        path.write_text(json.dumps(parts))

    @property
    def _url(self) -> str:
        return str(self._server.make_url("")).rstrip("/")

    def asked(self, method: str, part: str) -> int:
        """Returns the number of such requests."""
        return sum(verb == method and part in path for verb, path in self.requests)

    async def put(self, path: str, found: Json) -> Json:
        """Writes an object as another client would."""
        kept = self.objects.get(path)
        found = copy.deepcopy(found)
        metadata = found["metadata"]
        metadata["uid"] = (
            kept["metadata"]["uid"] if kept else metadata.get("uid") or f"uid-{next(self._uids)}"
        )
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        await self._keep(path, found, "MODIFIED" if kept else "ADDED")
        return found

    async def drop(self, path: str, *, tell: bool = True) -> None:
        """Deletes an object as another client would. Without `tell` no watch sees the deletion."""
        found = self.objects.pop(path)
        self._version += 1
        if tell:
            await self._announce("DELETED", found, path)

    def hang_up(self, part: str) -> None:
        """Cuts the connections of such watches."""
        for path, request in self._streams:
            if part in path and request.transport is not None:
                request.transport.abort()
        self._streams = [(path, request) for path, request in self._streams if part not in path]

    async def _keep(self, path: str, found: Json, kind: str) -> None:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = found
        await self._announce(kind, found, path)

    async def _announce(self, kind: str, found: Json, path: str) -> None:
        found = copy.deepcopy(found)
        found["metadata"]["resourceVersion"] = str(self._version)
        self._history.append((self._version, kind, found, path))
        async with self._news:
            self._news.notify_all()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, query = request.path, request.query
        verb = "WATCH" if query.get("watch") else request.method
        self.requests.append((verb, path))
        body = json.loads(raw) if (raw := await request.read()) else {}
        fault = self._fault(verb, path)
        if fault:
            await asyncio.sleep(fault.seconds)
            if fault.status:
                return _status(fault.status, fault.message, fault.headers)
        if verb == "WATCH":
            return await self._watch(request, path, int(query.get("resourceVersion") or 0), fault)
        response = await getattr(self, f"_{verb.lower()}")(path, query, body)
        if fault and fault.cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    def _fault(self, verb: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.method == verb and fault.path in path and fault.times > 0:
                fault.times -= 1
                return fault
        return None

    async def _get(self, path: str, query: Any, body: Json) -> web.Response:
        if path in DISCOVERY:
            return web.json_response(DISCOVERY[path])
        if path in self.objects:
            return web.json_response(self.objects[path])
        if not _is_collection(path):
            return _status(404, f"{path} not found")
        found = [
            its for at, its in sorted(self.objects.items()) if _within(at, path) and _selected(its, query)
        ]
        begin, limit = int(query.get("continue") or 0), int(query.get("limit") or 10_000)
        rest = str(begin + limit) if begin + limit < len(found) else ""
        items = found[begin : begin + limit]
        return web.json_response(
            {
                "apiVersion": items[0].get("apiVersion", "v1") if items else "v1",
                "kind": f"{items[0].get('kind', '')}List" if items else "List",
                "metadata": {"resourceVersion": str(self._version), "continue": rest},
                "items": [_without_type(its) for its in items],
            }
        )

    async def _post(self, path: str, query: Any, body: Json) -> web.Response:
        at = f"{path}/{body['metadata']['name']}"
        if at in self.objects:
            return _status(409, f"{body['metadata']['name']} already exists")
        return web.json_response(await self.put(at, body), status=201)

    async def _put(self, path: str, query: Any, body: Json) -> web.Response:
        known = self.objects.get(path)
        if known is None:
            return _status(404, f"{path} not found")
        if body["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]:
            return _status(409, "the object has been modified")
        return web.json_response(await self.put(path, body))

    async def _patch(self, path: str, query: Any, body: Json) -> web.Response:
        at = path.removesuffix("/status")
        known = self.objects.get(at)
        if known is None:
            return _status(404, f"{path} not found")
        for name in ("uid", "resourceVersion"):
            if (wanted := body.get("metadata", {}).pop(name, None)) and wanted != known["metadata"][name]:
                return _status(409, f"the {name} is another")
        if (changed := merged(known, body)) == known:  # no change: no new version, and no event
            return web.json_response(known)
        if path != at:
            changed["metadata"] = _written_by(query.get("fieldManager", ""), changed["metadata"])
        return web.json_response(await self.put(at, changed))

    async def _delete(self, path: str, query: Any, body: Json) -> web.Response:
        known = self.objects.get(path)
        if known is None:
            return _status(404, f"{path} not found")
        uid = body.get("preconditions", {}).get("uid")
        if uid and uid != known["metadata"]["uid"]:
            return _status(409, "the uid is another")
        await self.drop(path)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _watch(
        self, request: web.Request, path: str, begin: int, fault: Fault | None
    ) -> web.StreamResponse:
        self._streams.append((path, request))
        self.tokens.append(request.headers.get("Authorization", ""))
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        if begin < self.compacted or (fault and fault.error):
            code = fault.error if fault and fault.error else 410
            status = {"kind": "Status", "code": code, "reason": "Injected", "message": "no"}
            await stream.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            return stream
        if fault and fault.cut:
            return stream
        sent = begin
        while True:
            for version, kind, found, at in list(self._history):
                if version > sent and _within(at, path) and not (fault and fault.silent):
                    await stream.write(json.dumps({"type": kind, "object": found}).encode() + b"\n")
                    sent = version
            async with self._news:
                await self._news.wait()


async def until(condition: Callable[[], Any], seconds: float = 200.0) -> None:
    """Waits until a condition holds. The timeout only ends a wait that would have no end."""
    pause = 0.002
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(pause)
            pause *= 1.05


def _status(code: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(
        {"kind": "Status", "code": code, "message": message}, status=code, headers=headers
    )


def _is_collection(path: str) -> bool:
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    return len(rest) in (1, 3)


def _within(path: str, collection: str) -> bool:
    """Whether the collection, of one namespace or of all, contains the item."""
    if path.startswith(f"{collection}/"):
        return True
    root, _, plural = collection.rpartition("/")
    parts = path.removeprefix(f"{root}/").split("/")
    return path.startswith(root) and len(parts) == 4 and parts[0] == "namespaces" and parts[2] == plural


def _without_type(found: Json) -> Json:
    """Returns an item of a list, without apiVersion and kind, which only the list has."""
    return {name: value for name, value in found.items() if name not in ("apiVersion", "kind")}


def _written_by(manager: str, metadata: Json) -> Json:
    """Records a write of a status in the managed fields, as far as the operator reads them."""
    entries = {entry["manager"]: entry for entry in metadata.get("managedFields", ())}
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"  # a real server writes whole seconds
    entries[manager] = {"manager": manager, "operation": "Update", "subresource": "status", "time": now}
    return metadata | {"managedFields": list(entries.values())}


def _selected(found: Json, query: Any) -> bool:
    labels = found["metadata"].get("labels") or {}
    wanted = [part.split("=") for part in query.get("labelSelector", "").split(",") if part]
    uid = query.get("fieldSelector", "").removeprefix("involvedObject.uid=")
    concerns = not uid or found.get("involvedObject", {}).get("uid") == uid
    return concerns and all(labels.get(name) == value for name, value in wanted)
