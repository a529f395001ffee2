"""Chooses ports for servers of tests."""

from __future__ import annotations

import socket
from random import SystemRandom

FIRST, LAST = 10_000, 19_999
"""Outside of the ranges from which the kernel assigns ports to connections: 32768 to 60999, and for pods 20000 to 29999.
Within them another process could get the port before its server listens."""


def free_port() -> int:
    """Returns a port on which no process listens."""
    random = SystemRandom()  # pytest-randomly seeds the other generators equally in all workers
    while True:
        port = random.randint(FIRST, LAST)
        try:
            socket.create_server(("", port)).close()
        except OSError:
            continue
        return port
