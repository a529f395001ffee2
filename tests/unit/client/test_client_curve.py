from __future__ import annotations

import json
from pathlib import Path

import pytest
from rltraining import curve, history
from rltraining.snapshot import Point

POINTS = [Point(i * 1000, i / 10, 500 * i / 100) for i in range(101)]


def row(steps: int, time: float, run: str, mean_return: float | None) -> dict[str, object]:
    return {"environmentSteps": steps, "time": time, "run": run, "meanReturn": mean_return, "loss": 1.0}


def test_points_are_read_and_pauses_between_the_parts_of_a_run_do_not_count(tmp_path: Path) -> None:
    rows = [
        row(10, 100.0, "a", None),
        row(20, 101.0, "a", 5.0),
        row(30, 102.0, "a", 6.0),
        row(30, 900.0, "b", 6.0),
        row(40, 903.0, "b", 7.0),
        row(50, 904.0, "c", 8.0),
    ]
    lines = [json.dumps(row) for row in rows] + ['{"environmentSteps": 6']
    (tmp_path / history.PROGRESS_FILE).write_text("\n".join(lines))
    assert [(p.steps, p.seconds, p.mean_return) for p in history.read(tmp_path)] == [
        (20, 1.0, 5.0),
        (30, 2.0, 6.0),
        (30, 2.0, 6.0),
        (40, 5.0, 7.0),
        (50, 5.0, 8.0),
    ]


def test_no_file_no_points(tmp_path: Path) -> None:
    assert history.read(tmp_path) == ()


def test_the_curve_in_the_terminal_has_the_size_asked_for_and_both_ends_as_labels() -> None:
    lines = curve.terminal(POINTS, width=70, height=9).splitlines()
    assert len(lines) == 9
    assert max(map(len, lines)) <= 70
    assert "500┤" in lines[1]
    assert lines[-1].strip().startswith("0")
    assert "100k" in lines[-1]


@pytest.mark.parametrize("points", [[], POINTS[:1]])
def test_too_few_points_make_no_curve(points: list[Point]) -> None:
    assert curve.terminal(points, width=70, height=9) == ""


def test_a_flat_curve_can_be_drawn() -> None:
    assert curve.terminal([Point(0, 0, 9.0), Point(10, 1, 9.0)], width=70, height=9)


@pytest.mark.parametrize("goal", [None, 475.0])
def test_the_png_is_a_picture(tmp_path: Path, goal: float | None) -> None:
    path = tmp_path / curve.CURVE_FILE
    curve.png(POINTS, path, title="cartpole: impala on CartPole-v1", goal=goal)
    assert path.read_bytes().startswith(b"\x89PNG")
