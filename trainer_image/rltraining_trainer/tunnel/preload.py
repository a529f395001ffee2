"""Preloads the library of preload.c, which redirects torch's connections to the tunnel."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

LIBRARY = Path(__file__).resolve().with_name("libpreload.so")
VARIABLE, DONE = "LD_PRELOAD", "RLTRAINING_PRELOADED"


def preload() -> None:
    """Starts this program again with the library in front of libc, once. Does nothing if the library was not
    compiled.

    Call this after you have set the handler of SIGTERM. The signal is blocked until the second call.
    """
    before = os.environ.get(VARIABLE, "")
    if os.environ.pop(DONE, None) is not None:
        # Programs that this process starts do not need the library.
        os.environ[VARIABLE] = before.removeprefix(str(LIBRARY)).lstrip()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    elif LIBRARY.exists():
        os.environ |= {VARIABLE: f"{LIBRARY} {before}".rstrip(), DONE: "1"}
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the same program


def is_preloaded() -> bool:
    """Returns whether this process has the library."""
    return str(LIBRARY) in Path("/proc/self/maps").read_text()
