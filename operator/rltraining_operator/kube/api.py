"""Sends requests to the API server, as raw JSON, with a rate limit and a time-out for each request.

The official client finds the cluster and its credentials. Requests are sent with aiohttp, because
the client's typed models reject objects with unknown fields.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from kubernetes import client, config

from rltraining_operator.engine import Meter
from rltraining_operator.errors import (
    ClusterError,
    ConflictError,
    NotFoundError,
    RejectedError,
    UnavailableError,
)

Json = dict[str, Any]

CONTENT_TYPES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
}
CONNECTIONS = 32
RETRY_AFTER_MAX = 30.0
HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}
"""Without compression, since compressing a list of ten thousand pods takes the server longer than
sending the list within a cluster."""
UNCHECKED = {"fieldValidation": "Ignore"}
"""Disables warnings about unknown fields, which are not used. For them the server would parse each
body twice."""
STREAM_LINE_MAX = 1 << 22
"""Maximum bytes of one event of a watch. An object has at most 1.5 MiB."""

log = logging.getLogger(__name__)


class Gone(ClusterError):
    """The requested history has expired, so the objects must be listed again."""


class Bucket:
    """Limits requests to `qps` per second, and to `burst` after an idle period. First come, first
    served."""

    def __init__(self, qps: float, burst: int) -> None:
        self._interval = 1.0 / qps
        self._slack = burst * self._interval
        self._next = 0.0
        """When the next request would be due at a constant rate."""

    async def take(self) -> None:
        """Waits until a request is allowed."""
        now = time.monotonic()
        self._next = max(self._next, now - self._slack) + self._interval
        if (wait := self._next - now) > 0:
            await asyncio.sleep(wait)

    def pause(self, seconds: float) -> None:
        """Delays all requests by at least this time, as the server has requested."""
        self._next = max(self._next, time.monotonic() + min(seconds, RETRY_AFTER_MAX))


class Api:
    """A client of the API server. Every method raises `ClusterError` or one of its subclasses, and
    nothing else."""

    def __init__(
        self,
        *,
        qps: float,
        burst: int,
        request_seconds: float,
        meter: Meter,
        credentials: client.Configuration | None = None,
    ) -> None:
        self._bucket = Bucket(qps, burst)
        self._request_seconds = request_seconds
        self._meter = meter
        self._config = credentials or load_credentials()
        self._sessions: dict[int, aiohttp.ClientSession] = {}
        """By limit of connections. Watches have a separate session, since they would otherwise occupy the
        connections of requests."""
        self.last_answer = time.monotonic()
        """When the server last answered a request, in monotonic seconds."""

    async def close(self) -> None:
        """Closes the connections."""
        while self._sessions:
            await self._sessions.popitem()[1].close()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """Gets one object or one page of a list."""
        return await self._request("GET", path, query=query)

    async def post(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Json:
        """Creates an object."""
        return await self._request("POST", path, body=body, query={**UNCHECKED, **(query or {})})

    async def put(self, path: str, body: Mapping[str, Any]) -> Json:
        """Replaces an object, if the body's `resourceVersion` is the newest. Raises `ConflictError`
        otherwise."""
        return await self._request("PUT", path, body=body, query=UNCHECKED)

    async def patch(
        self, path: str, kind: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None
    ) -> Json:
        """Patches an object. `kind` is `apply` or `merge`."""
        query = {**UNCHECKED, **(query or {})}
        return await self._request("PATCH", path, body=body, query=query, content_type=CONTENT_TYPES[kind])

    async def delete(self, path: str, options: Mapping[str, Any]) -> Json:
        """Deletes an object, with DeleteOptions."""
        return await self._request("DELETE", path, body=options)

    async def pages(self, path: str, selector: str = "", limit: int = 500) -> AsyncIterator[Json]:
        """Yields the pages of a list, so that a large list is never in memory as a whole. Raises
        `Gone` if this takes too long."""
        query = {"limit": str(limit)} | ({"labelSelector": selector} if selector else {})
        while True:
            page = await self.get(path, query)
            yield page
            token = page.get("metadata", {}).get("continue")
            if not token:
                return
            query["continue"] = token

    async def stream(
        self, path: str, query: Mapping[str, str], *, silence_seconds: float
    ) -> AsyncIterator[Json]:
        """Yields the events of a watch until the server ends the stream. Raises `UnavailableError`
        after `silence_seconds` without an event, bookmarks included, and `Gone` if the first
        version has expired."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=silence_seconds)
        async with self._send("GET", path, query=query, timeout=timeout, verb="WATCH") as response:
            try:
                async for line in response.content:
                    self.last_answer = time.monotonic()
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _error(int(event["object"].get("code") or 500), event["object"], path)
                    yield event
            except (TimeoutError, aiohttp.ClientError, ValueError) as error:
                raise UnavailableError(
                    f"the watch of {path} was interrupted: {error or type(error).__name__}"
                ) from error

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        await self._bucket.take()
        timeout = aiohttp.ClientTimeout(total=self._request_seconds)
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        async with self._send(
            method, path, query=query, timeout=timeout, data=data, content_type=content_type
        ) as response:
            try:
                return dict(json.loads(await response.read()))
            except (TimeoutError, aiohttp.ClientError, ValueError) as error:
                raise UnavailableError(f"{method} {path}: the response was cut off: {error!r}") from error

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
        query: Mapping[str, str] | None = None,
        data: bytes | None = None,
        content_type: str = "application/json",
        verb: str = "",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Sends a request and yields the response. Raises an error for a bad status."""
        began, code = time.monotonic(), "none"
        headers = {**HEADERS, "Content-Type": content_type, **self._authorization()}
        try:
            session = self._session(0 if verb == "WATCH" else CONNECTIONS)
            async with session.request(
                method,
                self._config.host + path,
                params=query,
                data=data,
                headers=headers,
                timeout=timeout,
                proxy=self._config.proxy,
            ) as response:
                code, self.last_answer = str(response.status), time.monotonic()
                if response.status >= 400:
                    if retry := response.headers.get("Retry-After", ""):
                        self._bucket.pause(float(retry) if retry.isdigit() else 1.0)
                    raise _error(response.status, _json(await response.read()), path)
                yield response
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise UnavailableError(f"{method} {path}: {error or type(error).__name__}") from error
        finally:
            self._meter.request(verb or method, resource_of(path), code, time.monotonic() - began)

    def _authorization(self) -> dict[str, str]:
        """Returns the current token, because tokens are renewed while the operator runs."""
        key = self._config.get_api_key_with_prefix
        try:
            token = key("BearerToken") or key("authorization")
        # Credential plugins, and a token file that is being replaced, raise any error.
        except Exception as error:
            raise UnavailableError(f"no credentials: {error}") from error
        return {"Authorization": token} if token else {}

    def _session(self, limit: int) -> aiohttp.ClientSession:
        if limit not in self._sessions:
            connector = aiohttp.TCPConnector(limit=limit, ssl=_ssl_context(self._config))
            self._sessions[limit] = aiohttp.ClientSession(connector=connector, read_bufsize=STREAM_LINE_MAX)
        return self._sessions[limit]


def load_credentials() -> client.Configuration:
    """Returns the credentials of the pod's service account, or of the kubeconfig. Raises
    `UnavailableError`."""
    found = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        try:
            config.load_kube_config(client_configuration=found)  # type: ignore[no-untyped-call]
        except config.ConfigException as error:
            raise UnavailableError(f"no cluster: not in a pod, and no usable kubeconfig ({error})") from error
    return found


def resource_of(path: str) -> str:
    """Returns the plural in a path for metrics, such as `pods` or `rltrainingjobs/status`."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return "/".join(rest[:1] + rest[2:3])


def _ssl_context(found: client.Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=found.ssl_ca_cert)
    if found.cert_file:
        context.load_cert_chain(found.cert_file, found.key_file)
    if not found.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _json(raw: bytes) -> Json:
    try:
        return dict(json.loads(raw))
    except (ValueError, TypeError):
        return {"message": raw[:200].decode(errors="replace")}


def _error(code: int, status: Json, path: str) -> ClusterError:
    """Converts a `Status` of the server to an exception."""
    message, reason = str(status.get("message") or f"status {code}"), status.get("reason")
    match code:
        case 404:
            return NotFoundError(message)
        case 409 if "exceeded quota" in message:
            return RejectedError(message)
        case 409:
            return ConflictError(message)
        case 410:
            return Gone(message)
        case 401 | 408 | 429 | 500 | 502 | 503 | 504:
            return UnavailableError(f"{path}: {reason or code}: {message}")
        case 403 if "is being terminated" in message:
            return NotFoundError(message)
        case 403 if "cannot find RESTMapping" in message:  # the server has not loaded a new CRD yet
            return UnavailableError(message)
        case _:
            return RejectedError(message)
