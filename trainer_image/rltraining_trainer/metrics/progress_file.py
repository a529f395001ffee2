"""``progress.jsonl``: one JSON object a line and point in time, for learning curves."""

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
    """Appends points to what an earlier process wrote, once that is cut to what is still valid."""

    def __init__(self, path: Path, *, first_step: int) -> None:
        """``first_step``: of what an earlier process wrote, points from it on are void."""
        self._path = path
        self._first_step = first_step
        self._file = AppendFile(path)
        self._is_cut = False

    def cut(self) -> None:
        """Cut off void points and a line that a crash tore; ``append`` does it, if readers can wait.

        Steps only grow, so these are the end of the file: cutting them needs no room. Raises OSError.
        """
        if not self._is_cut:
            with suppress(FileNotFoundError):
                os.truncate(self._path, _valid_bytes(self._path.read_bytes(), self._first_step))
            self._is_cut = True

    def append(self, step: int, values: Mapping[str, float | str | None]) -> None:
        """Raises OSError when it cannot be written. NaN and infinity, which JSON lacks, become null."""
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
