"""The learning curve's points, from `progress.jsonl` in a run's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rltraining.snapshot import Point

PROGRESS_FILE = "progress.jsonl"


def read(folder: Path) -> tuple[Point, ...]:
    """All points of the run that have a return, oldest first; none when there is no such file yet."""
    try:
        lines = (folder / PROGRESS_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ()
    return tuple(
        Point(row["environmentSteps"], row["seconds"], row["meanReturn"])
        for row in map(_parse, lines)
        if row.get("meanReturn") is not None
    )


def _parse(line: str) -> dict[str, Any]:
    """Empty for a line that a crash has torn."""
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}
