"""torch behind a tunnel: its connections lead through it, and only through it."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rltraining_api.contract import ENV_HTTP_HOST
from rltraining_trainer.tunnel.supervisor import PATH, PORT

PROGRAM = Path(__file__).with_name("tunnel_members.py")


class Server:
    """A process at 127.0.0.1, which processes with a tunnel at 127.0.0.2 can call."""

    def __init__(self) -> None:
        self.port = 10_000 + secrets.randbelow(20_000)  # which the kernel assigns to no other socket
        self.process = start("server", self.port, host="127.0.0.1", stdin=subprocess.PIPE)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def call(self, *, tunnel: bool = True) -> str:
        """Calls from another process."""
        client = start("client", self.port if tunnel else 0, self.url, host="127.0.0.2")
        return client.communicate(timeout=100)[0].strip()


def start(*arguments: object, host: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    nowhere = {PATH: "/nowhere", PORT: "1"}  # until the process has a tunnel
    variables = os.environ | {"TP_SOCKET_IFNAME": "lo", ENV_HTTP_HOST: host} | nowhere
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(command, env=variables, stdin=stdin, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.process.communicate("", timeout=100)


@pytest.mark.skipif(sys.platform != "linux", reason="the tunnel needs Linux")
def test_calls_lead_through_the_tunnel_and_strangers_do_not_reach_torch(server: Server) -> None:
    assert server.call() == "42"
    # Without a tunnel there is no other way.
    assert server.call(tunnel=False) == "lost"
    # TensorPipe would close its listener after a silent connection, and end the process after foreign bytes.
    host, port = server.url.removeprefix("uv://").rsplit(":", 1)
    for content in (b"", b"GET / HTTP/1.0\r\n\r\n"):
        with socket.create_connection(
            (host, int(port)), timeout=100, source_address=("127.0.0.2", 0)
        ) as stranger:
            stranger.sendall(content)
            stranger.settimeout(100)
            try:
                assert not stranger.recv(1)
            except ConnectionResetError:
                continue
    assert server.call() == "42"
