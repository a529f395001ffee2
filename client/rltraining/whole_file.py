"""Files that are written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
    try:
        yield fresh
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
