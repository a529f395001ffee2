"""``python -m rltraining_trainer.tunnel.process PORT OWN-PORT PARENT CONTROL``: the tunnel of a pod.

Leads connections of this pod's torch to other pods, and connections of other pods and of the
operator to a port of this pod, both over TLS with the job's certificate:

    torch ── 127.0.0.1:OWN-PORT ── tunnel ══ TLS ══ ADDRESS:PORT ── tunnel ── ADDRESS:port ── torch

Listens at the address in ENV_HTTP_HOST, or at all. Reads the job's token from standard input, and
prints its own port, which is any free one if ``OWN-PORT`` is 0. Each datagram at the path
``CONTROL`` says where one connection of torch should lead: see preload.c. On SIGTERM the process passes
on what was sent, and ends. It also ends with the process with the id ``PARENT``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from rltraining_api.contract import ENV_HTTP_HOST, PORT_BYTES
from rltraining_api.tls import client_context, server_context

from rltraining_trainer.process import die_with

CONNECT_SECONDS = 10.0
"""Time limit of a connection with its handshake."""
FINISH_SECONDS = 1.0
"""How long the end waits for open connections."""
CHUNK_BYTES = 256 << 10
"""Most bytes that are read at once."""
DATAGRAM_BYTES_MAX = 128

_LOG = logging.getLogger(__name__)


class Tunnel:
    """Both directions of the tunnel."""

    def __init__(self, port: int, control: socket.socket, token: str) -> None:
        """
        Args:
            port: The port of all pods of the job at which tunnels speak TLS with each other.
            control: Receives datagrams ``LOCAL-PORT ADDRESS PORT``.
            token: The job's token.
        """
        self._port, self._control = port, control
        self._client, self._server = client_context(token), server_context(token)
        self._targets: dict[int, tuple[str, int]] = {}
        """Where announced connections should lead, by their local port."""
        self._open: set[asyncio.Task[None]] = set()

    async def finish(self) -> None:
        """Waits until the open connections have ended, and what they sent has been passed on, for a bounded time."""
        if self._open:
            await asyncio.wait(self._open, timeout=FINISH_SECONDS)

    @asynccontextmanager
    async def serving(self, host: str | None, own_port: int = 0) -> AsyncIterator[int]:
        """Listens at ``host``, or at all addresses. Yields the port for this pod's torch: ``own_port``, or any free one."""
        async with AsyncExitStack() as stack:
            inward = await asyncio.start_server(
                self._inward, host, self._port, ssl=self._server, ssl_handshake_timeout=CONNECT_SECONDS
            )
            await stack.enter_async_context(inward)
            outward = await asyncio.start_server(self._outward, "127.0.0.1", own_port)
            await stack.enter_async_context(outward)
            port = int(outward.sockets[0].getsockname()[1])
            with suppress(OSError):  # without IPv6
                await stack.enter_async_context(await asyncio.start_server(self._outward, "::1", port))
            yield port

    async def _outward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Leads a connection of this pod's torch to another pod."""
        self._read_announcements()
        address, port = self._targets.pop(writer.get_extra_info("peername")[1], ("", 0))
        if not address:
            writer.transport.abort()  # not from torch
            return
        other = asyncio.open_connection(address, self._port, ssl=self._client)
        await self._track(_join(reader, writer, other, port.to_bytes(PORT_BYTES, "big")))

    async def _inward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Leads a connection of another pod to a port of this one."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                port = int.from_bytes(await reader.readexactly(PORT_BYTES), "big")
        except (OSError, EOFError):
            writer.transport.abort()
            return
        address = writer.get_extra_info("sockname")[0]
        # From the same address: preload.c lets torch accept no other connection.
        other = asyncio.open_connection(address, port, local_addr=(address, 0))
        await self._track(_join(reader, writer, other))

    async def _track(self, joined: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(joined)
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        await task

    def _read_announcements(self) -> None:
        """Reads the datagrams that have arrived: that of a connection is sent before the connection."""
        with suppress(BlockingIOError):
            while True:
                datagram = self._control.recv(DATAGRAM_BYTES_MAX)
                with suppress(ValueError):  # from another program of the pod
                    local, address, port = datagram.decode().split()
                    self._targets[int(local)] = address, int(port)


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    connecting: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]],
    prefix: bytes = b"",
) -> None:
    """Sends ``prefix`` over a second connection, and copies both ways until one of the two ends."""
    other: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            other_reader, other = await connecting
        other.write(prefix)
        await asyncio.gather(_copy(reader, other), _copy(other_reader, writer))
    except OSError as error:  # also time-outs and errors of TLS
        _LOG.debug("a connection ended: %s", error)
    finally:
        for end in filter(None, (writer, other)):
            end.close()
        for end in filter(None, (writer, other)):
            with suppress(OSError):
                await end.wait_closed()  # what is left is sent


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copies until the source ends. Then it raises ConnectionResetError, which ends the other direction too."""
    while chunk := await source.read(CHUNK_BYTES):
        sink.write(chunk)
        await sink.drain()
    raise ConnectionResetError


async def _serve(port: int, own_port: int, path: str, token: str) -> None:
    control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    control.bind(path)
    tunnel, ended = Tunnel(port, control, token), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with tunnel.serving(os.environ.get(ENV_HTTP_HOST), own_port) as chosen:
        print(chosen, flush=True)
        await ended.wait()
        await tunnel.finish()


def main() -> None:
    port, own_port, parent = map(int, sys.argv[1:4])
    die_with(parent)
    asyncio.run(_serve(port, own_port, sys.argv[4], sys.stdin.readline().strip()))


if __name__ == "__main__":
    main()
