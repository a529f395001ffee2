"""The history that is read from a run's folder."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from rltraining import history
from rltraining_api.curve import CurvePoint


def write(folder: Path, *lines: str) -> Path:
    (folder / history.PROGRESS_FILE).write_text("\n".join(lines))
    return folder


def row(steps: int, **more: Any) -> str:
    return json.dumps({"environmentSteps": steps, "seconds": steps / 10, **more})


def test_points_of_the_curve_are_those_with_a_return(tmp_path: Path) -> None:
    assert history.read(tmp_path) == ()
    write(tmp_path, row(10, meanReturn=None), row(20, meanReturn=5.0, episodes=3), row(30, meanReturn=6), "")
    assert history.curve(history.read(tmp_path)) == (
        CurvePoint(environment_steps=20, seconds=2.0, mean_return=5.0),
        CurvePoint(environment_steps=30, seconds=3.0, mean_return=6.0),
    )


@pytest.mark.parametrize(
    "torn", ['{"environmentSteps": 40, "sec', "[1]\n", '{"x": 1}\n', "\x00\n", "[" * 100_000 + "\n", row(40)]
)
def test_a_line_that_is_no_whole_point_is_passed_over(tmp_path: Path, torn: str) -> None:
    rows = history.read(write(tmp_path, row(20), row(30), torn))
    assert [line["environmentSteps"] for line in rows] == [20, 30]


@pytest.mark.parametrize("count", [1, 2000, 2001, 4001])
def test_of_a_long_run_a_bounded_number_of_points_is_read_evenly(tmp_path: Path, count: int) -> None:
    rows = history.read(write(tmp_path, *map(row, range(count)), ""))
    steps = [line["environmentSteps"] for line in rows]
    assert min(count, history.ROWS_MAX // 2) <= len(steps) <= history.ROWS_MAX
    assert (steps[0], steps[-1]) == (0, count - 1)
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    assert max(gaps[:-1], default=1) <= 2 * min(gaps[:-1], default=1)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 10**400, "5", True])
def test_what_cannot_be_drawn_is_no_number(value: Any) -> None:
    assert history.number({"x": value}, "x") is None
