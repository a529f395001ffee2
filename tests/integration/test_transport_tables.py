"""The table of a message's tensors: a pickle that torch reads before any message type or key can be looked at."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest
from rltraining_api.contract import ExitCode
from rltraining_trainer.transport import Endpoint
from test_transport import address, find
from transport_processes import Start

TENSORS = 20_000
"""The table of this many tensors takes about 1 MB."""
IDLE_SECONDS = 0.2
"""After this idle time, the caller has sent the complete message."""
HOOKS = b"ccollections\nOrderedDict\n"
"""Begins the last item of a tensor in the table, which torch reads and drops."""


def nested(table: bytes) -> bytes:
    """Returns a table of equal length and one tensor.

    The tensor's last item is a tuple in a tuple in a tuple, and so on.
    """
    begin, end = table[: table.index(HOOKS)] + b")", b"tRetR."
    return begin + b"\x85" * (len(table) - len(begin) - len(end)) + end


def forward(server: socket.socket, target: tuple[str, int]) -> None:
    """Passes one connection on to `target`, with each table of tensors replaced."""
    caller, _ = server.accept()
    with caller, socket.create_connection(target) as callee, contextlib.suppress(OSError):

        def back() -> None:
            with contextlib.suppress(OSError):
                while content := callee.recv(2**16):
                    caller.sendall(content)

        threading.Thread(target=back, daemon=True).start()
        caller.settimeout(IDLE_SECONDS)
        held = b""
        while True:
            with contextlib.suppress(TimeoutError):
                while content := caller.recv(2**20):
                    held += content
                return
            start = held.find(b"\x80\x02ctorch.jit._pickle")
            if start >= 0:
                length = int.from_bytes(held[start - 8 : start], "little")
                if len(held) < start + length:
                    continue  # the rest of the table is still to come
                held = held[:start] + nested(held[start : start + length]) + held[start + length :]
            callee.sendall(held)
            held = b""


def test_a_stranger_s_nested_table_of_tensors_is_no_crash_of_the_member_s_own(
    start: Start, endpoint: Endpoint, request: pytest.FixtureRequest
) -> None:
    learner = start("learner", 0)
    url = find(endpoint, f"http://127.0.0.1:{learner.hear()}").url
    server = socket.create_server(("127.0.0.1", 0))
    request.addfinalizer(server.close)
    threading.Thread(target=forward, args=(server, address(url)), daemon=True).start()

    start("table_sender", f"{url.rpartition(':')[0]}:{server.getsockname()[1]}", TENSORS)

    assert learner.wait() == ExitCode.FOREIGN_BYTES
