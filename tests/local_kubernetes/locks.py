"""Locks for one command at a time, which end with their holder."""

from __future__ import annotations

import fcntl
import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.local_kubernetes.places import Places


@contextmanager
def alone(places: Places, what: str) -> Iterator[int]:
    """Holds the lock of that name, and reports on standard error when another command holds it.

    Yields the lock's file descriptor. A child that inherits the descriptor also holds the lock, even
    when the child outlives this process.
    """
    path = places.cache / "locks" / what
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"… waiting for another command: it holds {path}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def name_of(run: Path) -> str:
    """Returns the name of the lock of the cluster in that directory."""
    return f"cluster-{hashlib.sha256(str(run).encode()).hexdigest()[:12]}"
