"""The tunnels of two pods, at two addresses of this machine."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
from rltraining_api.contract import port_prefix
from rltraining_api.tls import client_context, server_context
from rltraining_trainer.tunnel import admission
from rltraining_trainer.tunnel.process import Tunnel

pytestmark = pytest.mark.anyio
CALLER, CALLED = "127.0.0.2", "127.0.0.3"
SECONDS = 30.0
HANDSHAKES = 32


@pytest.fixture
def _few_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "HANDSHAKES_MAX", HANDSHAKES)
    monkeypatch.setattr(admission, "PATIENCE_SECONDS", 0.5)


class Pod:
    """The side of torch in a pod, which connects through the tunnel."""

    def __init__(self, path: Path, port: int) -> None:
        self._path, self._port = str(path), port

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Announces a connection, and makes it."""
        connection = socket.socket()
        connection.bind(("127.0.0.1", 0))
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as sender:
            sender.sendto(f"{connection.getsockname()[1]} {host} {port}".encode(), self._path)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
        return await asyncio.open_connection(sock=connection)


@asynccontextmanager
async def pods(tmp_path: Path, *, callers_token: str = "token") -> AsyncIterator[tuple[Pod, int, int]]:
    """Yields the caller, the port for TLS, and the port of a server in the called pod, which sends back its input."""

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    tasks = len(asyncio.all_tasks())
    async with AsyncExitStack() as stack:
        tls_port = 10_000 + secrets.randbelow(20_000)  # which the kernel assigns to no other socket
        server = await stack.enter_async_context(await asyncio.start_server(repeat, CALLED, 0))
        ports = []
        for host, token in ((CALLER, callers_token), (CALLED, "token")):
            control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            stack.callback(control.close)
            control.bind(str(tmp_path / host))
            tunnel = Tunnel(tls_port, control, token)
            ports.append(await stack.enter_async_context(tunnel.serving(host)))
        yield Pod(tmp_path / CALLER, ports[0]), tls_port, server.sockets[0].getsockname()[1]
    while len(asyncio.all_tasks()) > tasks:  # of connections that are being closed
        await asyncio.sleep(0.01)


async def ends(reader: asyncio.StreamReader) -> bool:
    """Whether the connection ends without a byte."""
    with suppress(OSError):
        return not await asyncio.wait_for(reader.read(1), SECONDS)
    return True


async def test_bytes_pass_both_ways_in_their_order(tmp_path: Path) -> None:
    sent = bytes(range(256)) * 8192  # more than all buffers hold
    async with pods(tmp_path) as (caller, _, port):
        reader, writer = await caller.connect(CALLED, port)
        writer.write(sent)
        assert await asyncio.wait_for(reader.readexactly(len(sent)), SECONDS) == sent
        writer.close()


async def test_connections_lead_where_each_was_announced_to(tmp_path: Path) -> None:
    async with (
        pods(tmp_path) as (caller, _, port),
        await asyncio.start_server(lambda _, writer: writer.close(), CALLED, 0) as silent,
    ):
        repeating = await caller.connect(CALLED, port)
        ending = await caller.connect(CALLED, silent.sockets[0].getsockname()[1])
        for _, writer in (repeating, ending):
            writer.write(b"x")
        assert await asyncio.wait_for(repeating[0].readexactly(1), SECONDS) == b"x"
        assert await ends(ending[0])
        for _, writer in (repeating, ending):
            writer.close()


async def test_a_connection_ends_if_nothing_listens_at_its_target(tmp_path: Path) -> None:
    async with pods(tmp_path) as (caller, _, port):
        for host in (CALLED, "127.0.0.4"):
            reader, writer = await caller.connect(host, port + 1)
            writer.write(b"x")
            assert await ends(reader)
            writer.close()


async def test_a_client_that_ends_after_its_first_bytes_is_no_silent_connection_for_torch(
    tmp_path: Path,
) -> None:
    received: list[bytes] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1 << 16))
        writer.close()

    async with (
        pods(tmp_path) as (_, tls_port, _),
        await asyncio.start_server(receive, CALLED, 0) as server,
    ):
        port = server.sockets[0].getsockname()[1]
        for _ in range(10):
            _, writer = await asyncio.open_connection(CALLED, tls_port, ssl=client_context("token"))
            writer.write(port_prefix(port) + b"hello")
            writer.close()
        async with asyncio.timeout(SECONDS):
            while len(received) < 10:
                await asyncio.sleep(0.01)
    assert received == [b"hello"] * 10


async def test_the_tunnel_of_another_job_is_refused(tmp_path: Path) -> None:
    async with pods(tmp_path, callers_token="another") as (caller, _, port):
        reader, writer = await caller.connect(CALLED, port)
        writer.write(b"x")
        assert await ends(reader)
        writer.close()


async def test_clients_without_the_certificate_are_refused(tmp_path: Path) -> None:
    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anonymous.check_hostname, anonymous.verify_mode = False, ssl.CERT_NONE
    async with pods(tmp_path) as (_, tls_port, port):
        for context in (None, anonymous):
            reader, writer = await asyncio.open_connection(CALLED, tls_port, ssl=context)
            writer.write(port_prefix(port) + b"GET / HTTP/1.0\r\n\r\n")
            # A refusal of TLS itself is a short alert.
            with suppress(OSError):
                assert b"GET" not in await asyncio.wait_for(reader.read(), SECONDS)
            writer.transport.abort()


@pytest.mark.usefixtures("_few_handshakes")
async def test_silent_clients_are_limited_in_number_and_keep_no_others_out(tmp_path: Path) -> None:
    async with pods(tmp_path) as (caller, tls_port, port):
        silent = [await asyncio.open_connection(CALLED, tls_port) for _ in range(HANDSHAKES + 20)]
        repeating = await caller.connect(CALLED, port)
        repeating[1].write(b"x")
        async with asyncio.timeout(admission.HANDSHAKE_SECONDS / 2):
            for reader, _ in silent[:20]:
                assert await ends(reader)
            assert await repeating[0].readexactly(1) == b"x"
        assert not silent[-1][0].at_eof()
        for _, writer in (*silent, repeating):
            writer.close()


@pytest.mark.usefixtures("_few_handshakes")
async def test_a_burst_of_members_is_admitted(tmp_path: Path) -> None:
    context = client_context("token")
    async with pods(tmp_path) as (_, tls_port, port):
        members = await asyncio.gather(
            *(asyncio.open_connection(CALLED, tls_port, ssl=context) for _ in range(4 * HANDSHAKES))
        )
        for _, writer in members:
            writer.write(port_prefix(port) + b"x")
        for reader, writer in members:
            assert await asyncio.wait_for(reader.read(1), SECONDS) == b"x"
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in members), return_exceptions=True)


async def test_a_client_refuses_a_server_with_another_token(tmp_path: Path) -> None:
    async with pods(tmp_path) as (_, tls_port, _):
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(CALLED, tls_port, ssl=client_context("another"))


def test_all_members_derive_one_certificate() -> None:
    first, second = (
        make("token").get_ca_certs(binary_form=True) for make in (client_context, server_context)
    )
    assert first == second
    assert first != client_context("another").get_ca_certs(binary_form=True)
