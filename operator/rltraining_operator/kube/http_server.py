"""Serves the operator's HTTP port: GET only, for untrusted clients.

At most CONNECTIONS_MAX connections are open at a time, each for at most CONNECTION_SECONDS. Beyond
that the oldest connection is closed. A kubelet sends its request with the connection and is
answered immediately, so the oldest connections are those of idle clients.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

CONNECTIONS_MAX = 64
CONNECTION_SECONDS = 5.0
HEAD_BYTES_MAX = 8 << 10
BACKLOG = 1024
"""Connections that the kernel queues until they are accepted. A short queue would drop probes
during a flood."""
_PAUSE_SECONDS = 0.1
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Unavailable"}

log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """The current content of a path."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class HttpServer:
    """Serves `routes`, a map from paths to handlers, in this event loop. Raises `OSError` if the
    port is taken."""

    def __init__(self, port: int, routes: Mapping[str, Callable[[], Answer]]) -> None:
        self._routes = dict(routes)
        self._open: dict[asyncio.Task[None], None] = {}
        """Open connections, in order of arrival."""
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._socket = socket.create_server(("", port), family=family, backlog=BACKLOG, dualstack_ipv6=dual)
        self._socket.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(), name="http")

    async def close(self) -> None:
        """Closes the port and every connection."""
        tasks = [self._accepting, *self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()

    async def _accept(self) -> None:
        """Accepts one connection at a time, so that each is read before many others can displace
        it."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:  # the client is gone, or no descriptor is left at the moment
                log.debug("a connection cannot be accepted: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            task = asyncio.create_task(self._serve(connection))
            self._open[task] = None
            task.add_done_callback(lambda task: self._open.pop(task, None))
            if len(self._open) > CONNECTIONS_MAX:
                oldest = next(iter(self._open))
                del self._open[oldest]
                oldest.cancel()
            await asyncio.sleep(0)

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with connection, suppress(OSError, TimeoutError):
            connection.setblocking(False)
            async with asyncio.timeout(CONNECTION_SECONDS):
                head = b""
                while b"\r\n\r\n" not in head:
                    chunk = await loop.sock_recv(connection, HEAD_BYTES_MAX)
                    head += chunk
                    if not chunk or len(head) > HEAD_BYTES_MAX:
                        return
                answer = self._answer(head)
                # Not joined: connections share the body, and metrics may have megabytes.
                await loop.sock_sendall(connection, _head(answer))
                await loop.sock_sendall(connection, answer.body)
                connection.shutdown(socket.SHUT_WR)

    def _answer(self, head: bytes) -> Answer:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return Answer(400, b"this is no HTTP/1\n")
        if words[0] != "GET":
            return Answer(405, b"only GET is answered\n")
        make = self._routes.get(words[1].partition("?")[0])
        return make() if make is not None else Answer(404, b"there is nothing at this path\n")


def _head(answer: Answer) -> bytes:
    return (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
    ).encode()
