"""``python -m rltraining_trainer.tunnel.process PORT OWN-PORT PARENT CONTROL``: the tunnel of a pod.

Forwards connections of this pod's torch to other pods, and connections of other pods and of the
operator to a port of this pod, both over TLS with the job's certificate:

    torch ── 127.0.0.1:OWN-PORT ── tunnel ══ TLS ══ ADDRESS:PORT ── tunnel ── ADDRESS:port ── torch

Listens at the address in ENV_HTTP_HOST, or at all addresses. Reads the job's token from standard
input, and prints its own port, which is any free one if ``OWN-PORT`` is 0. Each datagram at the path
``CONTROL`` contains the destination of one connection of torch: see preload.c. On SIGTERM, or after
the end of the process with the id ``PARENT``, the tunnel forwards the received bytes, and ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from rltraining_api.contract import ENV_HTTP_HOST, PORT_BYTES, port_prefix
from rltraining_api.tls import client_context, server_context

from rltraining_trainer.process import die_with
from rltraining_trainer.tunnel.admission import WITHOUT_IPV6, Admission, listen

CONNECT_SECONDS = 10.0
"""Time limit of connecting, and of the first bytes of a client with the token."""
FINISH_SECONDS = 1.0
"""How long the end waits for open connections."""
CHUNK_BYTES = 256 << 10
"""Limit of one read."""
DATAGRAM_BYTES_MAX = 128
KEEPALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 6}
"""Seconds and number of probes after which the connection to a lost node ends."""

_LOG = logging.getLogger(__name__)


class Tunnel:
    """Forwards connections in both directions."""

    def __init__(self, port: int, control: socket.socket, token: str) -> None:
        """
        Args:
            port: The port of all pods of the job for TLS between tunnels.
            control: A non-blocking socket, which receives datagrams ``LOCAL-PORT ADDRESS PORT``.
            token: The job's token.
        """
        self._port, self._control = port, control
        self._client, self._server = client_context(token), server_context(token)
        self._targets: dict[int, tuple[str, int]] = {}
        """Destinations of announced connections, by their local port."""
        self._open: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self, host: str | None, own_port: int = 0) -> AsyncIterator[int]:
        """Listens at ``host``, or at all addresses. Yields the port for this pod's torch: ``own_port``, or any free one."""
        async with AsyncExitStack() as stack:
            admission = Admission(listen(host, self._port), self._server, self._lead_in)
            stack.push_async_callback(admission.close)
            torch = await asyncio.start_server(self._lead_out, "127.0.0.1", own_port)
            await stack.enter_async_context(torch)
            port = int(torch.sockets[0].getsockname()[1])
            try:
                await stack.enter_async_context(await asyncio.start_server(self._lead_out, "::1", port))
            except OSError as error:
                if error.errno not in WITHOUT_IPV6:
                    raise
            loop = asyncio.get_running_loop()
            loop.add_reader(self._control, self._read_announcements)
            stack.callback(loop.remove_reader, self._control)
            yield port

    async def finish(self) -> None:
        """Waits until the open connections have ended and their last bytes were sent, for a bounded time."""
        if self._open:
            await asyncio.wait(self._open, timeout=FINISH_SECONDS)

    async def _lead_out(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards a connection of this pod's torch to another pod."""
        self._read_announcements()
        address, port = self._targets.pop(writer.get_extra_info("peername")[1], ("", 0))
        if not address:
            writer.transport.abort()  # this connection is not from torch
            return
        other = asyncio.open_connection(address, self._port, ssl=self._client)
        await self._track(_join(reader, writer, other, port_prefix(port)))

    async def _lead_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards a connection of another pod to a port of this pod."""
        address = writer.get_extra_info("sockname")[0]
        # Wait for the first bytes: TensorPipe closes its listener after a connection that ends without bytes.
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                port = int.from_bytes(await reader.readexactly(PORT_BYTES), "big")
                first = await reader.read(CHUNK_BYTES)
        except (OSError, EOFError):
            first = b""
        if not first:
            writer.transport.abort()
            return
        # Connect from the same address: preload.c lets torch accept no other connection.
        other = asyncio.open_connection(address, port, local_addr=(address, 0))
        await self._track(_join(reader, writer, other, first))

    async def _track(self, joined: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(joined)
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        await task

    def _read_announcements(self) -> None:
        """Reads the datagrams that have arrived. Each is sent before its connection."""
        with suppress(BlockingIOError):
            while True:
                datagram = self._control.recv(DATAGRAM_BYTES_MAX)
                with suppress(ValueError):  # a datagram of another program of the pod
                    local, address, port = datagram.decode().split()
                    self._targets[int(local)] = address, int(port)


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    connecting: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]],
    prefix: bytes,
) -> None:
    """Sends ``prefix`` over a second connection, and copies in both directions until one of the connections ends."""
    ends = [writer]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            other_reader, other = await connecting
        ends.append(other)
        other.write(prefix)  # before any call that fails if the first connection has ended
        for end in ends:
            _keep_alive(end.get_extra_info("socket"))
        await asyncio.gather(_copy(reader, other), _copy(other_reader, writer))
    except OSError as error:  # also time-outs and errors of TLS
        _LOG.debug("a connection ended: %s", error)
    finally:
        for end in ends:
            end.close()
        for end in ends:
            with suppress(OSError):
                await end.wait_closed()  # the buffered bytes are sent, unless the connection is broken


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copies until the source ends. Then raises ConnectionResetError, which ends the other direction, too."""
    while chunk := await source.read(CHUNK_BYTES):
        sink.write(chunk)
        await sink.drain()
    raise ConnectionResetError


def _keep_alive(connection: socket.socket | None) -> None:
    """Sets the options of a connection. None: the connection has ended."""
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


async def _serve(port: int, own_port: int, path: str, token: str) -> None:
    control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    tunnel, ended = Tunnel(port, control, token), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with tunnel.serving(os.environ.get(ENV_HTTP_HOST), own_port) as chosen:
        control.bind(path)
        print(chosen, flush=True)
        await ended.wait()
        await tunnel.finish()
        os._exit(0)  # leaving the context would wait for all connections


def main() -> None:
    port, own_port, parent = map(int, sys.argv[1:4])
    die_with(parent, signal.SIGTERM)
    # Each connection of torch takes two descriptors here.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_serve(port, own_port, sys.argv[4], sys.stdin.readline().strip()))


if __name__ == "__main__":
    main()
