"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rltraining.errors import UsageError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write it, and its folder if need be; what was there before stays when this fails. Raises OSError."""
    with whole(path) as fresh:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file beside it, with its ending, that takes its place when all went well. What is no file (/dev/null) is written to as
    it is; of a link, what it leads to. Raises OSError."""
    if path.exists() and not path.is_file():
        yield path  # /dev/stdout may lead to a pipe, which has no name of its own
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".new-{path.name}")
    fresh.unlink(missing_ok=True)  # of a command that was killed; in a stranger's folder perhaps a link
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
