"""Mutated requests at the HTTP ports of members and the operator get no document without the token and do no lasting
harm."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import Iterator

import pytest
from free_port import free_port
from mutated import mutated
from resident_memory import resident
from rltraining_api.contract import HEALTH_PATH, METRICS_PATH, RENDEZVOUS_PATH, STATUS_PATH
from rltraining_operator.kube.http_server import Answer, HttpServer
from rltraining_trainer.transport import MemberServer
from soak import SOAK

REQUESTS = 5_000 * SOAK if SOAK > 1 else 100
TOKEN, DOCUMENT = "the token", "what only members may read"
CORPUS = [
    f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {word}\r\n\r\n".encode()
    for path in (HEALTH_PATH, METRICS_PATH, RENDEZVOUS_PATH, STATUS_PATH, "/../../etc/passwd")
    for word in ("another token", TOKEN[:-1], "")
] + [
    b"POST /v1/status HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01" + bytes(32),
]


def member() -> Iterator[int]:
    """Yields the port of a member's server."""
    documents = dict.fromkeys((RENDEZVOUS_PATH, STATUS_PATH), lambda: {"secret": DOCUMENT})
    server = MemberServer(0, TOKEN, ready=lambda: True, documents=documents, metrics=lambda: b"up 1\n")
    server.start()
    yield server.port
    server.stop()


def operator() -> Iterator[int]:
    """Yields the port of an operator's server, which runs its event loop in a thread."""
    port = free_port()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def serve() -> HttpServer:
        return HttpServer(
            port, {HEALTH_PATH: lambda: Answer(200, b"ok"), METRICS_PATH: lambda: Answer(200, b"up 1\n")}
        )

    server = asyncio.run_coroutine_threadsafe(serve(), loop).result()
    yield port
    asyncio.run_coroutine_threadsafe(server.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def ask(port: int, request: bytes) -> bytes:
    """Sends a request, closes the sending side, and returns the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                answer += part
        return answer


@pytest.mark.parametrize("serve", [member, operator])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_mutated_requests_get_no_document_and_leave_the_server_as_it_was(serve: type[Iterator[int]]) -> None:
    rng, before = random.Random(3), 0
    with contextlib.contextmanager(serve)() as port:
        for i in range(REQUESTS):
            answer = ask(port, mutated(rng.choice(CORPUS), rng))
            assert DOCUMENT.encode() not in answer
            assert TOKEN.encode() not in answer
            if i == REQUESTS // 10:
                before = resident()
        assert b" 200 " in ask(port, b"GET " + HEALTH_PATH.encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n")[:20]
        after = resident()
    print(f"{REQUESTS} requests; memory {before >> 20} MiB, then {after >> 20} MiB")
    assert after < 1.1 * before
