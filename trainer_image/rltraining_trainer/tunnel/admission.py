"""Admits clients that have the job's token, and bounds what all others can occupy."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

HANDSHAKES_MAX = 256
"""Connections in the handshake. Each takes up to 0.6 MB of memory for buffers."""
HANDSHAKE_SECONDS = 10.0
PATIENCE_SECONDS = 2.0
"""How long a handshake may take if other connections wait for it."""
BACKLOG = 1024
"""Connections that the kernel queues until they are accepted."""
WITHOUT_IPV6 = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""Errors of IPv6 addresses on a machine without IPv6."""
_PAUSE_SECONDS = 0.01
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_LOG = logging.getLogger(__name__)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def listen(host: str | None, port: int) -> list[socket.socket]:
    """Returns sockets that listen at ``host``, or at all addresses: one for IPv4, and one for IPv6 if there is any.

    Raises OSError if the port is taken.
    """
    family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
    listeners = [socket.create_server((host or "", port), family=family, backlog=BACKLOG)]
    if host is None:
        try:
            listeners.append(socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG))
        except OSError as error:
            if error.errno not in WITHOUT_IPV6:
                raise
    for listener in listeners:
        listener.setblocking(False)
    return listeners


class Admission:
    """Accepts connections of ``listeners`` over TLS, and calls ``serve`` with each client that ``context`` has
    authenticated.

    If there are too many handshakes, the next connection waits until one has been completed, or the oldest one has taken too
    long and is ended.
    """

    def __init__(self, listeners: list[socket.socket], context: ssl.SSLContext, serve: Serve) -> None:
        self._listeners, self._context, self._serve = listeners, context, serve
        self._handshakes: dict[asyncio.Task[None], float] = {}  # with their start times, oldest first
        self._served: set[asyncio.Task[None]] = set()
        self._accepting = [asyncio.create_task(self._accept(each)) for each in listeners]

    async def close(self) -> None:
        """Closes the listeners, and ends the handshakes in progress."""
        tasks = [*self._accepting, *self._handshakes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:  # the client is gone, or no descriptor is left at the moment
                exhausted = error.errno in _EXHAUSTED
                _LOG.log(
                    logging.WARNING if exhausted else logging.DEBUG, "no connection is accepted: %s", error
                )
                await asyncio.sleep(1.0 if exhausted else _PAUSE_SECONDS)
                continue
            # Begin the handshake.
            task = asyncio.create_task(self._welcome(connection))
            self._handshakes[task] = loop.time()
            task.add_done_callback(self._forget)
            # Wait until there is room for another one.
            while len(self._handshakes) >= HANDSHAKES_MAX:
                oldest, since = next(iter(self._handshakes.items()))
                if loop.time() - since > PATIENCE_SECONDS:
                    del self._handshakes[oldest]
                    oldest.cancel()
                else:
                    await asyncio.sleep(_PAUSE_SECONDS)

    async def _welcome(self, connection: socket.socket) -> None:
        # Shake hands.
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except OSError as error:  # also errors of TLS
            _LOG.debug("a client was not admitted: %s", error)
            return

        # The client has the token: it is not counted any more.
        task = asyncio.current_task()
        assert task is not None
        self._handshakes.pop(task, None)
        self._served.add(task)
        await self._serve(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        self._served.discard(task)
        with suppress(asyncio.CancelledError):
            task.result()
