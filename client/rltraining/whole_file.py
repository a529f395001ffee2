"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write it, and its folder if need be; what was there before stays when this fails. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
