"""One command at a time: locks that die with their holder."""

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
    """Hold the lock of that name, and say so when somebody else has it first.

    Gives its file descriptor: a child that is handed it holds the lock too, even when it outlives us.
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
    """Of the lock of the cluster in that directory."""
    return f"cluster-{hashlib.sha256(str(run).encode()).hexdigest()[:12]}"
