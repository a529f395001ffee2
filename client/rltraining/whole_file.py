"""Writes files atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rltraining.errors import UsageError


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file, and creates its folder if needed. An existing file is unchanged if this fails.
    Raises OSError."""
    with whole(path) as fresh:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a new file in the same folder, with the same suffix, that replaces `path` on success.
    A path that is not a regular file (/dev/null) is written to directly. A link is followed. Raises
    OSError."""
    if path.exists() and not path.is_file():
        yield path  # /dev/stdout may be a pipe, which has no path
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".new-{path.name}")
    fresh.unlink(missing_ok=True)  # left by a killed command, or a link in an untrusted folder
    try:
        yield fresh
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def check_stays_in(folder: Path, path: Path) -> None:
    """Raises UsageError unless a write to `path` changes only a file in `folder`.

    The folder may be untrusted, and a link in it may point to any of the user's files.
    """
    inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
    if not inside or (path.exists() and not path.is_file()):
        raise UsageError(
            f"{path}: is a link out of {folder}, or no regular file: name another file with --output"
        )
