"""Loads preload.c before torch, which leads torch's connections to the tunnel."""

from __future__ import annotations

import os
import sys
from pathlib import Path

LIBRARY = Path(__file__).with_name("libpreload.so")
VARIABLE = "LD_PRELOAD"


def preload() -> None:
    """Starts this program again with the library in front of libc, unless that has happened, or the library
    was not compiled."""
    libraries = os.environ.get(VARIABLE, "").split()
    if not LIBRARY.exists():
        return
    if str(LIBRARY) not in libraries:
        os.environ[VARIABLE] = " ".join([str(LIBRARY), *libraries])
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the same program
    # Programs that this process starts do not need it.
    libraries.remove(str(LIBRARY))
    os.environ[VARIABLE] = " ".join(libraries)


def is_preloaded() -> bool:
    """Returns whether this process has the library."""
    return str(LIBRARY) in Path("/proc/self/maps").read_text()
