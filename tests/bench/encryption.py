"""The cost of TLS: calls between two processes that have a tunnel each, and between two that have none."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from rltraining_api.contract import ENV_HTTP_HOST

from tests.bench.table import print_table

TOKEN = "bench"
SECONDS = 3.0
KILOBYTES = (0, 10, 100, 1000, 10_000)


def run(seeds: int) -> None:
    plain, encrypted = _measure(0), _measure(_free_port())
    rows = [
        (
            f"{kilobytes:,}",
            f"{1e6 * before:,.0f}",
            f"{1e6 * after:,.0f}",
            f"{after / before:.1f}",
            f"{kilobytes / before / 1000:,.0f}",
            f"{kilobytes / after / 1000:,.0f}",
        )
        for kilobytes, before, after in zip(KILOBYTES, plain, encrypted, strict=True)
    ]
    print_table(("KB a call", "plain µs", "TLS µs", "ratio", "plain MB/s", "TLS MB/s"), rows)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _measure(port: int) -> list[float]:
    """Returns the seconds of a call with each size. ``port``: for TLS, 0 without."""
    server = _start("server", port, host="127.0.0.1")
    assert server.stdout is not None
    client = _start("client", port, server.stdout.readline().strip(), host="127.0.0.2")
    seconds = client.communicate()[0].split()
    server.communicate("")
    return [float(value) for value in seconds]


def _start(*arguments: object, host: str) -> subprocess.Popen[str]:
    variables = os.environ | {"TP_SOCKET_IFNAME": "lo", ENV_HTTP_HOST: host, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.bench.encryption", *map(str, arguments)]
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _member(role: str, port: int, url: str) -> None:
    """One of the two processes."""
    if port:
        from rltraining_trainer.tunnel.preload import preload

        preload()
        from rltraining_trainer.tunnel.supervisor import TunnelProcess

        TunnelProcess(port, TOKEN)
    import torch
    from rltraining_trainer.transport import Endpoint

    if role == "server":
        endpoint = Endpoint("server", TOKEN, {"take": lambda sender, payload: None})
        endpoint.start()
        print(endpoint.url, flush=True)
        sys.stdin.read()
        os._exit(0)
    endpoint = Endpoint("client", TOKEN)
    endpoint.start()
    peer = endpoint.dial(url)
    for kilobytes in KILOBYTES:
        content = torch.zeros(max(1, kilobytes * 250))
        peer.call("take", content).result()
        start, calls = time.monotonic(), 0
        while time.monotonic() < start + SECONDS:
            peer.call("take", content).result()
            calls += 1
        print((time.monotonic() - start) / calls, flush=True)
    os._exit(0)


if __name__ == "__main__":
    _member(sys.argv[1], int(sys.argv[2]), "".join(sys.argv[3:]))
