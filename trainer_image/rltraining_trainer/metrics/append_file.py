"""A file to which complete records are appended."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class AppendFile:
    """Appends without a buffer. If a record does not fit on the disk, its partial content is
    removed.

    The file is created with the first record, so a full disk at the start only loses points.
    """

    def __init__(self, path: Path, header: bytes = b"") -> None:
        """``header`` precedes the first record of an empty file."""
        self._path = path
        self._header = header
        self._descriptor: int | None = None

    def append(self, record: bytes) -> None:
        """Appends a record. Raises OSError if it cannot be written completely."""
        # Open the file.
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
        # Write the record, or restore the previous size.
        start = os.fstat(self._descriptor).st_size
        rest = memoryview(record if start else self._header + record)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, start)
            raise

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
