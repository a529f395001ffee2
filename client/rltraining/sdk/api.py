"""Sends requests to an API server, as raw JSON. The only module that uses HTTP.

The official client provides credentials, certificates and proxies. Its typed models are not used,
because an RLTrainingJob has separate models and raw JSON is several times faster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rltraining.sdk.access import Access
from rltraining.sdk.errors import ClusterUnreachableError
from rltraining.sdk.timing import Timing

Json = dict[str, Any]
Query = Mapping[str, str | int]

JSON_TYPE = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
CONNECTIONS_KEPT = 64
"""Size of the connection pool. Further connections are closed after use."""
PASSING = (429, 500, 502, 503, 504)
"""Status codes after which a request is retried."""


class Refused(Exception):
    """The API server's answer was not 2xx. `jobs.py` converts it to a message."""

    def __init__(self, code: int, status: Json) -> None:
        self.code = code
        self.status = status
        """The `Status` object. Contains only `message` if the answer was not a `Status`."""
        super().__init__(f"the API server answers {code}: {self.message}")

    @property
    def message(self) -> str:
        return str(self.status.get("message") or "")

    @property
    def reason(self) -> str:
        return str(self.status.get("reason") or "")

    @property
    def details(self) -> Json:
        return self.status.get("details") or {}


class ConnectionLost(ClusterUnreachableError):
    """A connection could not be made, or has broken."""


class Silence(ConnectionLost):
    """Nothing was received on a connection for too long."""


class Api:
    """A client of one API server."""

    def __init__(self, access: Access, timing: Timing) -> None:
        from kubernetes.client import ApiClient

        access.configuration.retries = False  # `_json` retries instead, depending on the error
        access.configuration.connection_pool_maxsize = CONNECTIONS_KEPT
        self.access = access
        self.timing = timing
        self._client: Any = ApiClient(access.configuration)

    def get(self, path: str, query: Query | None = None, *, accept: str = JSON_TYPE) -> Json:
        return self._json("GET", path, query, accept=accept)

    def create(self, path: str, body: Json, query: Query | None = None) -> Json:
        return self._json("POST", path, query, body)

    def patch(self, path: str, body: Json, query: Query | None = None, *, kind: str = MERGE_PATCH) -> Json:
        return self._json("PATCH", path, query, body, content=kind)

    def delete(self, path: str, body: Json) -> Json:
        return self._json("DELETE", path, None, body)

    @contextmanager
    def stream(self, path: str, query: Query, *, silence: float | None) -> Iterator[Iterator[bytes]]:
        """Yields the lines of an answer as they arrive. Raises ConnectionLost if the connection
        breaks, and Silence after `silence` seconds without a byte."""
        response = self._send("GET", path, query, None, "*/*", JSON_TYPE, silence)
        try:
            yield self._lines(response)
        finally:
            response.close()

    def _json(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: Json | None = None,
        *,
        accept: str = JSON_TYPE,
        content: str = JSON_TYPE,
    ) -> Json:
        for tried in range(1, self.timing.tries + 1):
            try:
                response = self._send(method, path, query, body, accept, content, self.timing.answer)
                return self._parsed(self._whole(response))
            except (ConnectionLost, Refused) as error:
                if tried == self.timing.tries or not _may_repeat(method, error):
                    raise
                self.timing.pause(self.timing.pause_after(tried))
        raise AssertionError("a request is tried at least once")

    def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: Json | None,
        accept: str,
        content: str,
        silence: float | None,
    ) -> Any:
        """Sends a request. Returns a urllib3 response whose body is not read yet. Raises Refused,
        ConnectionLost."""
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content
        request = self._client.param_serialize(
            method,
            path,
            query_params=[(key, str(value)) for key, value in (query or {}).items()],
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        with self._translated():
            answer = self._client.call_api(*request, _request_timeout=(self.timing.connect, silence))
        if not 200 <= answer.status <= 299:
            raise Refused(answer.status, _status(self._whole(answer.response)))
        return answer.response

    def _whole(self, response: Any) -> bytes:
        with self._translated():
            return bytes(response.data)

    def _parsed(self, body: bytes) -> Json:
        try:
            return _document(body)
        except ValueError:  # such as the login page of a proxy
            raise ConnectionLost(self._unreachable("the answer is not from an API server")) from None

    def _lines(self, response: Any) -> Iterator[bytes]:
        buffer = bytearray()
        with self._translated():
            for chunk in response.stream(amt=None, decode_content=False):
                *lines, rest = (bytes(buffer) + chunk).split(b"\n")
                buffer = bytearray(rest)
                yield from lines
        if buffer:
            yield bytes(buffer)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Converts errors of urllib3 and the official client to ConnectionLost or Silence."""
        from kubernetes.client import ApiException
        from urllib3 import exceptions

        try:
            yield
        except exceptions.ReadTimeoutError:
            raise Silence(self._unreachable("no response in time")) from None
        except (exceptions.HTTPError, ApiException, OSError) as error:
            raise ConnectionLost(self._unreachable(_why(error))) from None

    def _unreachable(self, why: str) -> str:
        return (
            f"the cluster of {self.access.description} does not answer: {why}: "
            "check that it runs, and that --context and --kubeconfig name the right one"
        )


def _may_repeat(method: str, error: ConnectionLost | Refused) -> bool:
    """Returns whether a request may be sent again. A POST is repeated only if the server did not
    process it."""
    if isinstance(error, Refused):
        return error.code == 429 or (error.code in PASSING and method != "POST")
    return method != "POST"


def _document(body: bytes) -> Json:
    document = json.loads(body or b"{}")
    return document if isinstance(document, dict) else {}


def _status(body: bytes) -> Json:
    try:
        return _document(body)
    except ValueError:
        return {"message": body.decode("utf-8", "replace").strip()[:500]}


def _why(error: Exception) -> str:
    """Returns the root cause in words, such as `Connection refused`."""
    text = str(getattr(error, "reason", None) or error).strip()
    if "CERTIFICATE_VERIFY_FAILED" in text or "SSL" in text.split("\n")[0]:
        return f"a certificate was rejected ({text.splitlines()[-1]})"
    if "resolve" in text:
        return "its name cannot be resolved"
    if "timed out" in text:
        return "timed out"
    last = text.splitlines()[-1] if text else type(error).__name__
    return last.rpartition("] ")[2].strip("')(") or last
