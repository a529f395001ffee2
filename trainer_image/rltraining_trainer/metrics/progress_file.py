"""``progress.jsonl``: one JSON object per line, with the metrics at one time."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rltraining_trainer.metrics.append_file import AppendFile

STEP = "environmentSteps"


class ProgressFile:
    """Appends points to a file, after truncating it to the valid points of earlier processes."""

    def __init__(self, path: Path, *, first_step: int) -> None:
        """``first_step``: earlier points from this step on are invalid."""
        self._path = path
        self._first_step = first_step
        self._file = AppendFile(path)
        self._is_cut = False

    def cut(self) -> None:
        """Truncates the file before invalid points and incomplete lines. ``append`` calls this if
        needed.

        Invalid points are at the end, because steps do not decrease. Truncating therefore needs no
        disk space. Raises OSError.
        """
        if not self._is_cut:
            with suppress(FileNotFoundError):
                os.truncate(self._path, _valid_bytes(self._path.read_bytes(), self._first_step))
            self._is_cut = True

    def append(self, step: int, values: Mapping[str, float | str | None]) -> None:
        """Appends a point, with null for NaN and infinity. Raises OSError."""
        self.cut()
        point = {STEP: step} | {name: _finite(value) for name, value in values.items()}
        self._file.append((json.dumps(point, allow_nan=False) + "\n").encode())

    def close(self) -> None:
        self._file.close()


def _finite(value: float | str | None) -> float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _valid_bytes(content: bytes, first_step: int) -> int:
    size = 0
    for line in content.splitlines(keepends=True):
        if not _is_valid(line, first_step):
            break
        size += len(line)
    return size


def _is_valid(line: bytes, first_step: int) -> bool:
    try:
        return line.endswith(b"\n") and json.loads(line)[STEP] < first_step
    except (ValueError, KeyError, TypeError):
        return False
