"""The memory of processes."""

from __future__ import annotations

import resource
from pathlib import Path


def resident(pid: int | str = "self") -> int:
    """Returns a process's resident memory in bytes, by default that of this process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
