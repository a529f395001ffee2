"""Steps with their seconds, on standard error, so that nobody wonders what is going on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.local_kubernetes.errors import ClusterError


@contextmanager
def step(name: str, *, slow: str = "") -> Iterator[None]:
    """Say what is done, then how long it took. A slow step also says beforehand how long it may take."""
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
    """Until `holds()`; it may raise OSError, which means not yet.

    `alive()` says why there is nothing left to wait for, or None while there is.
    Raises ClusterError when that happens, or after so many seconds.
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
