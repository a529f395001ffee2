"""A member's HTTP port against well-behaved and misbehaving clients."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any

import pytest
from rltraining_api.contract import HEALTH_PATH, METRICS_PATH, READY_PATH, RENDEZVOUS_PATH, STATUS_PATH
from rltraining_trainer.transport import MemberServer, PeerLost, Refused, Stopped, discover, member_server

RENDEZVOUS = {"url": "uv://10.0.0.1:3000", "incarnation": "a1", "modelVersion": 7}


def broken() -> Mapping[str, Any]:
    raise RuntimeError("no status")


@pytest.fixture
def ready() -> threading.Event:
    return threading.Event()


@pytest.fixture
def server(ready: threading.Event) -> Iterator[MemberServer]:
    documents = {RENDEZVOUS_PATH: lambda: RENDEZVOUS if ready.is_set() else None, STATUS_PATH: broken}
    server = MemberServer(0, "secret", ready=ready.is_set, documents=documents, metrics=lambda: b"up 1\n")
    server.start()
    yield server
    server.stop()


def test_a_server_of_one_address_is_not_reached_at_another() -> None:
    server = MemberServer(0, "secret", ready=lambda: True, documents={}, host="127.0.0.1")
    server.start()
    try:
        with closing(socket.create_connection(("127.0.0.1", server.port), timeout=5)):
            pass
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", server.port), timeout=5)
    finally:
        server.stop()


def test_an_encrypted_members_documents_are_for_its_own_tunnel() -> None:
    documents = {RENDEZVOUS_PATH: lambda: RENDEZVOUS}
    server = MemberServer(0, "secret", ready=lambda: True, documents=documents, encrypted=True)
    server.start()
    try:
        for source, status in (("127.0.0.1", 200), ("127.0.0.2", 403)):
            connection = http.client.HTTPConnection(
                "127.0.0.1", server.port, timeout=30, source_address=(source, 0)
            )
            with closing(connection):
                connection.request("GET", RENDEZVOUS_PATH, headers={"Authorization": "Bearer secret"})
                assert connection.getresponse().status == status
            with closing(socket.create_connection(("127.0.0.1", server.port), 30, (source, 0))) as probe:
                probe.sendall(f"GET {READY_PATH} HTTP/1.0\r\n\r\n".encode())
                assert b" 200 " in probe.recv(100)
    finally:
        server.stop()


def get(port: int, path: str, authorization: str | None = None, method: str = "GET") -> int:
    """Returns the status of the response."""
    with closing(http.client.HTTPConnection("localhost", port, timeout=30)) as connection:
        connection.request(method, path, headers={"Authorization": authorization} if authorization else {})
        return connection.getresponse().status


@pytest.mark.parametrize(
    ("path", "authorization", "status", "before_ready"),
    [
        (HEALTH_PATH, None, 200, 200),
        (HEALTH_PATH + "?verbose", None, 200, 200),
        (READY_PATH, None, 200, 503),
        (METRICS_PATH, "Bearer wrong", 200, 200),
        (RENDEZVOUS_PATH, None, 401, 401),
        (RENDEZVOUS_PATH, "Bearer wrong", 401, 401),
        (RENDEZVOUS_PATH, "secret", 401, 401),
        (RENDEZVOUS_PATH, "Bearer größer", 401, 401),
        (RENDEZVOUS_PATH, "Bearer secret", 200, 503),
        (STATUS_PATH, "Bearer secret", 500, 500),
        ("/etc/passwd", "Bearer secret", 404, 404),
    ],
)
def test_paths_and_credentials(
    server: MemberServer,
    ready: threading.Event,
    path: str,
    authorization: str | None,
    status: int,
    before_ready: int,
) -> None:
    assert get(server.port, path, authorization) == before_ready
    ready.set()
    assert get(server.port, path, authorization) == status


def test_metrics_are_text_of_the_type_that_prometheus_asks_for(server: MemberServer) -> None:
    connection = http.client.HTTPConnection("localhost", server.port, timeout=5)
    connection.request("GET", METRICS_PATH)
    response = connection.getresponse()
    assert response.read() == b"up 1\n"
    assert response.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    connection.close()


def test_only_get_is_answered(server: MemberServer) -> None:
    assert get(server.port, HEALTH_PATH, method="POST") == 501


def test_discover_reads_the_document_or_reports_a_wrong_token_or_a_lost_learner(
    server: MemberServer, ready: threading.Event
) -> None:
    base_url = f"http://127.0.0.1:{server.port}"
    with pytest.raises(PeerLost, match="not ready"):
        discover(base_url, "secret", timeout=60.0)
    with pytest.raises(Refused, match="the token is wrong"):
        discover(base_url, "wrong", timeout=60.0)
    ready.set()
    assert discover(base_url, "secret", timeout=60.0) == RENDEZVOUS

    server.stop()
    with pytest.raises(PeerLost, match="refused"):
        discover(base_url, "secret", timeout=60.0)


@pytest.mark.parametrize("base_url", ["http://no-such-host.invalid:1", "http://127.0.0.1:99999", "nonsense"])
def test_discover_at_a_bad_address_is_peer_lost(base_url: str) -> None:
    with pytest.raises(PeerLost):
        discover(base_url, "secret", timeout=60.0)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"not http\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n[1]",
        b"HTTP/1.0 200 OK\r\n\r\n{}",
        b'HTTP/1.0 200 OK\r\n\r\n{"url": "uv://127.0.0.1:1"' + b" " * 70_000 + b"}",
    ],
)
def test_discover_at_something_else_is_peer_lost(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
            connection, _ = other.accept()
            connection.recv(4096)
            connection.sendall(answer)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(PeerLost):
            discover(f"http://127.0.0.1:{other.getsockname()[1]}", "secret", timeout=60.0)
        thread.join()


def test_discover_at_a_silent_server_ends_in_time_or_when_asked_to_stop() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        base_url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(PeerLost):
            discover(base_url, "secret", timeout=0.1)

        stopping = threading.Event()
        stopping.set()
        with pytest.raises(Stopped):
            discover(base_url, "secret", timeout=600, stopping=stopping)


def test_silent_clients_do_not_keep_others_out(server: MemberServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit, ten minutes, is too long to free connections for other clients."""
    monkeypatch.setattr(member_server, "_CONNECTION_SECONDS", 600.0)
    monkeypatch.setattr(member_server._RequestHandler, "timeout", 600.0)
    with ExitStack() as silent:
        # All of them fit into the listen queue. A client in excess would retry after a second.
        for _ in range(100):
            silent.enter_context(socket.create_connection(("127.0.0.1", server.port)))

        assert get(server.port, HEALTH_PATH) == 200
        # The server's threads close rejected connections after a delay.
        while len(server._server._open) > member_server._MOST_CONNECTIONS:
            time.sleep(0.001)


def test_a_slow_client_is_cut_off(server: MemberServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_server, "_CONNECTION_SECONDS", 0.1)
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as slow:
        slow.sendall(b"GET /healthz HTTP/1.0\r\nX-Slow: ")
        while _goes_on(slow):
            pass


def _goes_on(slow: socket.socket) -> bool:
    """Sends one byte; False once the other side has closed."""
    try:
        slow.sendall(b"x")
        slow.settimeout(0.05)
        return slow.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\n" + b"X: %s\r\n" % (b"a" * 1000) * 99 + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nX: %s\r\n\r\n" % (b"a" * 60_000),
        b"GET /%s HTTP/1.1\r\n\r\n" % (b"a" * 60_000),
    ],
)
def test_a_long_head_is_cut_off(server: MemberServer, head: bytes) -> None:
    """A client without the token would make a member hold 6 MB for each connection."""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as client,
        contextlib.suppress(ConnectionError),  # closed before the complete request was sent or read
    ):
        client.sendall(head)
        assert client.recv(1) == b""
    assert get(server.port, HEALTH_PATH) == 200


def test_any_bytes_are_survived(server: MemberServer) -> None:
    for junk in (b"\0" * 4096, b"\xff" * 70_000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port)) as stranger:
            stranger.sendall(junk)

    assert get(server.port, HEALTH_PATH) == 200


def test_a_port_is_taken_until_its_server_stops(server: MemberServer) -> None:
    with pytest.raises(OSError, match="in use"):
        MemberServer(server.port, "secret", ready=lambda: True, documents={})
    server.stop()
    server.stop()

    MemberServer(server.port, "secret", ready=lambda: True, documents={}).stop()
