"""Reads the metrics of a run from its `progress.jsonl`, a sample of them for a long run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rltraining_api.curve import CurvePoint, thinned
from rltraining_api.files import open_regular

from rltraining.errors import ClientError

PROGRESS_FILE = "progress.jsonl"
ROWS_MAX = 2000
"""Maximum number of points, since a picture cannot show more."""
LINE_BYTES_MAX = 64 << 10
"""Maximum size of a point. Reading ends at a longer line, which is not a point."""

Row = Mapping[str, Any]


EVALUATED_STEP = "evaluation/environmentSteps"
"""Step of the evaluated policy, which only points that report an evaluation contain."""


def read(folder: Path) -> tuple[Row, ...]:
    """Reads at most ROWS_MAX evenly spaced points, oldest first and including the latest.

    Returns no points while there is no file yet.
    """
    return _read(folder, lambda line: True)


def read_evaluations(folder: Path) -> tuple[Row, ...]:
    """Reads the points that contain an evaluation, with the same thinning as `read`."""
    marker = EVALUATED_STEP.encode()
    return tuple(
        row for row in _read(folder, lambda line: marker in line) if number(row, EVALUATED_STEP) is not None
    )


def _read(folder: Path, is_wanted: Callable[[bytes], bool]) -> tuple[Row, ...]:
    path = folder / PROGRESS_FILE
    try:
        with open_regular(path) as file:
            all_lines = iter(lambda: file.readline(LINE_BYTES_MAX), b"")
            lines = _some(line for line in all_lines if is_wanted(line))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ClientError(f"{path}: cannot be read: {error.strerror}") from None
    return thinned([row for line in lines if (row := _parse(line))], ROWS_MAX)


def curve(rows: Iterable[Row]) -> tuple[CurvePoint, ...]:
    """Returns the learning curve: the points with a return."""
    return tuple(
        CurvePoint(
            environment_steps=row["environmentSteps"], seconds=row["seconds"], mean_return=row["meanReturn"]
        )
        for row in rows
        if number(row, "meanReturn") is not None
    )


def number(row: Row, name: str) -> float | None:
    """Returns a measurement, or None if it is missing or cannot be drawn."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -sys.float_info.max <= value <= sys.float_info.max else None


def _some(lines: Iterable[bytes]) -> list[bytes]:
    """Returns all lines, or a sample of ROWS_MAX to 2 * ROWS_MAX lines that includes the last, so
    that memory is bounded."""
    kept: list[bytes] = []
    stride, last = 1, b""
    for i, line in enumerate(lines):
        if not line.endswith(b"\n"):
            break  # truncated by a crash, or being written
        last = line
        if i % stride == 0:
            kept.append(line)
            if len(kept) > 2 * ROWS_MAX:
                kept, stride = kept[::2], 2 * stride
    return kept if kept[-1:] == [last] else [*kept, last]


def _parse(line: bytes) -> dict[str, Any]:
    """Parses a point. Returns an empty dict for an invalid line."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    is_point = isinstance(row, dict) and None not in (number(row, "environmentSteps"), number(row, "seconds"))
    return row if is_point else {}
