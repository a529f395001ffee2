"""The learning curve's points, from `progress.jsonl` in a run's folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rltraining.snapshot import Point

PROGRESS_FILE = "progress.jsonl"


def read(workdir: Path) -> tuple[Point, ...]:
    """All points of the run that have a return; none when there is no such file yet."""
    try:
        lines = (workdir / PROGRESS_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ()
    return tuple(points(filter(None, map(_parse, lines))))


def points(rows: Iterable[dict[str, Any]]) -> Iterable[Point]:
    """Rows with wall-clock times to points with training seconds: the pauses between a run's parts do not count."""
    before, start, last, run = 0.0, 0.0, 0.0, None
    for row in rows:
        if row["run"] != run:
            before, start, run = before + last - start, row["time"], row["run"]
        last = row["time"]
        if row.get("meanReturn") is not None:
            yield Point(row["environmentSteps"], before + last - start, row["meanReturn"])


def _parse(line: str) -> dict[str, Any] | None:
    """None for a line that a crash has torn."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
