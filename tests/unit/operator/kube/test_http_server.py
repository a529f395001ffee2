"""The operator's HTTP port with clients that send half of a request, nothing, or something else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest
from free_port import free_port
from prometheus_client import CollectorRegistry, Counter
from rltraining_operator.kube.health import SCRAPE_SECONDS, Health, serve
from rltraining_operator.kube.http_server import CONNECTION_SECONDS, CONNECTIONS_MAX, HttpServer


class Well(Health):
    """The health of an operator without problems, or with one problem."""

    def __init__(self) -> None:
        self.problem = ""

    def ill(self) -> str:
        return ""

    def unready(self) -> str:
        return self.problem


class Port:
    """A server on a free port."""

    def __init__(self) -> None:
        self.health, registry = Well(), CollectorRegistry()
        self.count = Counter("asked", "Times", registry=registry)
        self.number = free_port()
        self.server: HttpServer = serve(self.number, self.health, registry)

    async def ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer

    async def get(self, path: str) -> tuple[int, bytes]:
        answer = await self.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body


@asynccontextmanager
async def serving() -> AsyncIterator[Port]:
    port = Port()
    try:
        yield port
    finally:
        await port.server.close()


async def test_what_kubelets_and_prometheus_ask() -> None:
    async with serving() as port:
        assert await port.get("/healthz") == (200, b"ok\n")
        assert await port.get("/readyz?verbose") == (200, b"ok\n")
        port.health.problem = "the pods are not listed yet"
        assert await port.get("/readyz") == (503, b"the pods are not listed yet\n")
        status, metrics = await port.get("/metrics")
        assert status == 200
        assert b"\nasked_total 0.0\n" in metrics
        assert (await port.get("/"))[0] == 404


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /healthz HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /healthz\r\n\r\n", b"400"),
        (b"\x16\x03\x01 \xff \xfe\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n", b"404"),
    ],
)
async def test_anything_else_is_refused(request_: bytes, status: bytes) -> None:
    async with serving() as port:
        assert (await port.ask(request_)).split()[1] == status
        assert (await port.get("/healthz"))[0] == 200


async def test_a_head_without_end_is_cut_off() -> None:
    async with serving() as port:
        with suppress(ConnectionError):  # closed before the complete request was read or sent
            assert not await port.ask(b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 100_000)
        assert (await port.get("/healthz"))[0] == 200


async def test_however_many_half_requests_there_are_the_probe_is_answered_and_few_are_open() -> None:
    async with serving() as port:
        with ExitStack() as held:
            for number in range(5 * CONNECTIONS_MAX):
                client = held.enter_context(socket.create_connection(("127.0.0.1", port.number)))
                client.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
                if number % 32 == 0:
                    assert await port.get("/healthz") == (200, b"ok\n")
            await asyncio.sleep(0.1)
            assert len(port.server._open) <= CONNECTIONS_MAX


async def test_a_silent_client_is_cut_off_after_a_time() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(b"GET /healthz HTTP/1.1\r\nX: ")
        began = asyncio.get_running_loop().time()
        assert await reader.read() == b""
        assert asyncio.get_running_loop().time() - began == pytest.approx(CONNECTION_SECONDS, abs=0.5)
        writer.close()


async def test_metrics_are_made_once_a_second_however_often_they_are_asked_for() -> None:
    async with serving() as port:
        first = await port.get("/metrics")
        port.count.inc()
        assert await port.get("/metrics") == first
        await asyncio.sleep(SCRAPE_SECONDS + 0.1)
        assert b"\nasked_total 1.0\n" in (await port.get("/metrics"))[1]
