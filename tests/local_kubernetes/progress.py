"""Prints steps with their durations on standard error, so that users can follow the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.local_kubernetes.errors import ClusterError


@contextmanager
def step(name: str, *, slow: str = "") -> Iterator[None]:
    """Prints the step's name, then its duration. Also prints the expected duration of a slow step first."""
    began = time.monotonic()
    if slow:
        print(f"… {name}: {slow}", file=sys.stderr, flush=True)
    elif sys.stderr.isatty():
        print(f"… {name}", end="\r", file=sys.stderr, flush=True)
    try:
        yield
    except BaseException:
        print(f"✗ {name} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)
        raise
    print(f"✓ {name} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)


def wait(what: str, holds: Callable[[], bool], *, seconds: float, alive: Callable[[], str | None]) -> None:
    """Waits until `holds()`, which may raise OSError when it cannot be checked yet.

    `alive()` returns the reason why waiting is pointless, or None while it is not.
    Raises ClusterError in that case, or after `seconds`.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
            reason = "it answers, but it is not ready"
        except OSError as error:
            reason = str(error)
        ended = alive()
        if ended is not None:
            raise ClusterError(f"waiting for {what}: {ended}")
        if time.monotonic() > end:
            raise ClusterError(f"{what} did not come within {seconds:.0f} s: {reason}")
        time.sleep(0.05)
