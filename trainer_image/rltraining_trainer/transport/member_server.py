"""Serves HTTP on a member's fixed port: probes, metrics, and documents for clients with the token.

RPC ports change (see endpoint.py) and must not be probed. This port is known in advance and
survives any request.
"""

from __future__ import annotations

import hmac
import json
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from rltraining_api.contract import HEALTH_PATH, METRICS_PATH, READY_PATH, RENDEZVOUS_PATH, port_prefix

from rltraining_trainer.transport.errors import PeerLost, Refused
from rltraining_trainer.transport.waiting import Latch

Document = Callable[[], "Mapping[str, Any] | None"]
"""Returns the current document of a path as JSON, or None while there is none yet (503)."""

_MOST_CONNECTIONS = 64
_CONNECTION_SECONDS = 5.0
_HEAD_BYTES_MAX = 8 << 10
"""Size of a request's first line and headers, which a member stores for each connection."""
_DOCUMENT_BYTES_MAX = 64 << 10
"""Maximum size of a document, since the other side may be a stranger."""

_log = logging.getLogger(__name__)


class MemberServer:
    """Serves a member's HTTP port from daemon threads, from `start` to `stop`.

    Status codes: HEALTH_PATH 200, READY_PATH 200 or 503, METRICS_PATH 200, and documents 200, 401
    without the bearer token, or 503 while there is none. Any is 500 if making the answer failed. In an
    encrypted job, documents are 403 for requests that did not arrive through this pod's tunnel.

    Slow and silent clients are disconnected after 5 s, and earlier if there are too many connections.
    So are clients that send a head of more than 8 KiB.
    """

    def __init__(
        self,
        port: int,
        token: str,
        *,
        ready: Callable[[], bool],
        documents: Mapping[str, Document],
        metrics: Callable[[], bytes] = bytes,
        host: str = "",
        encrypted: bool = False,
    ) -> None:
        """Binds `port` (0: any free one) of the address `host`, or of all interfaces.

        ``metrics`` renders Prometheus' text format at each request. Raises OSError if the port is taken.
        """
        self._server = _Server(host, port, _Routes(token, ready, documents, metrics, encrypted))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="http", daemon=True
        )

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Closes the port. May be called twice, and without a start."""
        if self._thread.is_alive():
            with suppress(OSError):  # wakes the thread, which would otherwise check only at its next turn
                self._server.socket.shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def discover(
    base_url: str,
    token: str,
    timeout: float = 2.0,
    stopping: threading.Event | None = None,
    tls_port: int | None = None,
) -> dict[str, Any]:
    """Fetches the learner's rendezvous document: ``{"url", "incarnation", "modelVersion"}``.

    The request runs in a separate thread, because a name lookup can take longer than any time-out.
    In an encrypted job it goes to ``tls_port`` of the learner.

    Raises:
        PeerLost: The learner is not reachable or ready, or does not answer within `timeout` seconds.
        Refused: The token is wrong.
        Stopped: `stopping` was set.
    """
    # Send the request.
    answers: list[tuple[int, bytes] | Exception] = []
    latch = Latch()

    def ask() -> None:
        try:
            answers.append(_get(base_url, RENDEZVOUS_PATH, token, timeout, tls_port))
        except (OSError, HTTPException, ValueError) as error:
            answers.append(error)
        latch.set()

    threading.Thread(target=ask, name="discover", daemon=True).start()
    if not latch.wait(timeout, stopping):
        raise PeerLost(f"{base_url}: no answer within {timeout} s")
    # Check the answer.
    answer = answers[0]
    if isinstance(answer, Exception):
        raise PeerLost(f"{base_url}: {answer}") from answer
    return _document(base_url, *answer)


def _get(base_url: str, path: str, token: str, timeout: float, tls_port: int | None) -> tuple[int, bytes]:
    address = urlsplit(base_url)
    host, port = address.hostname or "", address.port or 80
    connection = HTTPConnection(host, port, timeout=timeout)
    try:
        if tls_port is not None:
            from rltraining_api.tls import client_context

            connection.sock = client_context(token).wrap_socket(
                socket.create_connection((host, tls_port), timeout)
            )
            connection.sock.sendall(port_prefix(port))
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, response.read(_DOCUMENT_BYTES_MAX)
    finally:
        connection.close()


def _document(base_url: str, status: int, body: bytes) -> dict[str, Any]:
    if status == 401:
        raise Refused(f"{base_url}: the token is wrong")
    if status != 200:
        raise PeerLost(f"{base_url}: not ready (HTTP {status})")
    try:
        document = json.loads(body)
    except ValueError as error:
        raise PeerLost(f"{base_url}: answered no JSON: {error}") from error
    if not isinstance(document, dict) or not document.get("url"):
        raise PeerLost(f"{base_url}: the answer lacks the field url")
    return document


class _Routes:
    """Maps a path and credentials to a status and a body: JSON, or bytes for Prometheus."""

    def __init__(
        self,
        token: str,
        ready: Callable[[], bool],
        documents: Mapping[str, Document],
        metrics: Callable[[], bytes],
        encrypted: bool,
    ) -> None:
        self._encrypted = encrypted
        self._credentials = f"Bearer {token}".encode()
        self._ready = ready
        self._documents = dict(documents)
        self._metrics = metrics

    def answer(self, path: str, credentials: str, local: bool) -> tuple[int, Mapping[str, Any] | bytes]:
        """Returns status and body. ``local``: whether the client is in this pod."""
        if path == HEALTH_PATH:
            return 200, {}
        if path == READY_PATH:
            return (200 if self._ready() else 503), {}
        if path == METRICS_PATH:
            return 200, self._metrics()
        if path not in self._documents:
            return 404, {"error": "there is nothing at this path"}
        if self._encrypted and not local:
            return 403, {"error": "the job is encrypted: connect over TLS"}
        if not hmac.compare_digest(credentials.encode("utf-8", "replace"), self._credentials):
            return 401, {"error": "the bearer token is missing or wrong"}
        document = self._documents[path]()
        return (503, {"error": "not yet"}) if document is None else (200, document)


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    request_queue_size = 1024  # a short queue would drop probes during a flood

    def __init__(self, host: str, port: int, routes: _Routes) -> None:
        self.routes = routes
        self._open: dict[socket.socket, float] = {}  # open connections, in the order of their arrival
        self._lock = threading.Lock()
        dual = not host and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if dual else socket.AF_INET
        super().__init__((host or ("::" if dual else "0.0.0.0"), port), _RequestHandler)  # noqa: S104

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # HTTPServer.server_bind would look up this host's name, which can take seconds.
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = time.monotonic()
            crowd = list(self._open)[:-_MOST_CONNECTIONS]
        _cut(crowd)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Disconnects clients that are too slow. Called ten times a second by serve_forever."""
        oldest = time.monotonic() - _CONNECTION_SECONDS
        with self._lock:
            late = [connection for connection, since in self._open.items() if since < oldest]
        _cut(late)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error: a disconnected client is normal."""


def _cut(connections: list[socket.socket]) -> None:
    """Shuts connections down. The threads that serve them read an end of file and close them."""
    for connection in connections:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # gone already
            continue


class _Head:
    """Reads the head of a request. Raises ConnectionAbortedError beyond _HEAD_BYTES_MAX."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, _HEAD_BYTES_MAX

    def readline(self, size: int) -> bytes:
        line = self._file.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise ConnectionAbortedError("the head of the request is too long")
        return line

    def close(self) -> None:
        self._file.close()


class _RequestHandler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "rltraining"
    sys_version = ""
    timeout = _CONNECTION_SECONDS

    def setup(self) -> None:
        super().setup()
        self.rfile: Any = _Head(self.rfile)  # a request has no body here

    def do_GET(self) -> None:
        try:
            status, body = self.server.routes.answer(
                self.path.partition("?")[0],
                self.headers.get("Authorization", ""),
                local=self.client_address[0] == self.connection.getsockname()[0],
            )
        except Exception:
            _log.exception("GET %s failed", self.path)
            status, body = 500, {"error": "the document could not be made; see the log"}
        if isinstance(body, bytes):
            self._send(status, CONTENT_TYPE_PLAIN_0_0_4, body)
        else:
            self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing, since probes and polls arrive every second."""
