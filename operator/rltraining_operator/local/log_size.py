"""How large the log of a process may become: a process that a stranger pesters writes kilobytes a call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

LOG_BYTES_MAX = 64 << 20
KEPT_BYTES = 16 << 20
"""Of a log that has become too large: the newest lines, which hold the traceback if there is one."""
PERIOD_SECONDS = 1.0
LEFT_OUT = "... {} bytes before this line were left out: the log had become larger than {} MiB\n"


async def watch_log(path: Path, on_cut: Callable[[], None]) -> None:
    """Keep a log bounded while its process runs, but for what is written within a second."""
    while True:
        await asyncio.sleep(PERIOD_SECONDS)
        if shorten(path):
            on_cut()


def shorten(path: Path, most: int = LOG_BYTES_MAX, kept: int = KEPT_BYTES) -> int:
    """Cut the oldest lines of a log that is larger than `most` bytes. Returns how many bytes were cut.

    Whoever writes the log has it open in append mode, so the file is cut in place: its newest lines are read, it is
    emptied, and they are written again. What is written between the last read and the emptying, some microseconds, is lost.
    """
    try:
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size <= most:
                return 0
            file.seek(size - kept)
            newest = file.read()
            newest = newest[newest.find(b"\n") + 1 :]  # from the beginning of a line on, if there is one
            while more := file.read():
                newest += more
            cut = file.tell() - len(newest)
            file.truncate(0)
        with path.open("ab") as file:
            file.write(LEFT_OUT.format(cut, most >> 20).encode() + newest)
    except OSError:  # there is none yet, or the disk is full: the next second is soon enough
        return 0
    return cut
