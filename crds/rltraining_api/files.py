"""Reads files in untrusted folders, such as an unpacked archive."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file for reading; `path` may be a link to one.

    Raises OSError for anything else: opening a named pipe blocks, and a device such as /dev/zero has no end.
    """
    file = open(path, "rb", opener=_without_blocking)  # noqa: SIM115 - it is returned
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return file


def read_regular(path: Path, most: int) -> bytes:
    """Returns the content of a regular file. Raises OSError, also if it has more than `most` bytes."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"is larger than {most >> 20} MiB", str(path))
    return content


def _without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
