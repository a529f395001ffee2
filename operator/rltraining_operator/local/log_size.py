"""Bounds the size of a process's log, since external requests can make a process log kilobytes
each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

LOG_BYTES_MAX = 64 << 20
KEPT_BYTES = 16 << 20
"""Size of the newest lines that are kept of a log above the bound. They hold the traceback if there
is one."""
PERIOD_SECONDS = 1.0
LEFT_OUT = "... {} bytes before this line were left out: the log had become larger than {} MiB\n"


async def watch_log(path: Path, on_cut: Callable[[], None]) -> None:
    """Keeps a log below its bound while its process runs, except for the output of one second."""
    while True:
        await asyncio.sleep(PERIOD_SECONDS)
        if shorten(path):
            on_cut()


def shorten(path: Path, most: int = LOG_BYTES_MAX, kept: int = KEPT_BYTES) -> int:
    """Cuts the oldest lines of a log that is larger than `most` bytes. Returns how many bytes were
    cut.

    The writing process has the log open in append mode, so the file is cut in place: its newest
    lines are read, the file is truncated, and the lines are written again. Output between the last
    read and the truncation, a few microseconds, is lost.
    """
    try:
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size <= most:
                return 0
            file.seek(size - kept)
            newest = file.read()
            # Start at the beginning of a line, if there is one.
            newest = newest[newest.find(b"\n") + 1 :]
            while more := file.read():
                newest += more
            cut = file.tell() - len(newest)
            file.truncate(0)
        with path.open("ab") as file:
            file.write(LEFT_OUT.format(cut, most >> 20).encode() + newest)
    except OSError:  # there is no log yet, or the disk is full: try again after a second
        return 0
    return cut
