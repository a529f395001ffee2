from __future__ import annotations

import json
from pathlib import Path

import pytest
from rltraining import curve, history
from rltraining.snapshot import Point

POINTS = [Point(i * 1000, i / 10, 500 * i / 100) for i in range(101)]


def test_points_are_read_but_for_those_without_a_return_and_a_torn_line(tmp_path: Path) -> None:
    rows = [
        {"environmentSteps": 10, "seconds": 0.5, "meanReturn": None, "loss/loss": 1.0},
        {"environmentSteps": 20, "seconds": 1.0, "meanReturn": 5.0},
        {"environmentSteps": 30, "seconds": 2.0, "meanReturn": 6.0, "episodes": 3},
    ]
    lines = [*map(json.dumps, rows), '{"environmentSteps": 40, "sec']
    (tmp_path / history.PROGRESS_FILE).write_text("\n".join(lines))
    assert history.read(tmp_path) == (Point(20, 1.0, 5.0), Point(30, 2.0, 6.0))


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


def test_the_png_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / curve.CURVE_FILE
    curve.png(POINTS, path, title="cartpole: impala on CartPole-v1", goal=475.0)
    assert path.read_bytes().startswith(b"\x89PNG")
