from __future__ import annotations

from pathlib import Path

from rltraining import curve
from rltraining_api.curve import CurvePoint

POINTS = [
    CurvePoint(environment_steps=i * 1000, seconds=i / 10, mean_return=500 * i / 100) for i in range(101)
]
FLAT = [CurvePoint(environment_steps=steps, seconds=1, mean_return=9.0) for steps in (0, 10)]


def test_the_curve_in_the_terminal_has_the_size_asked_for_and_both_ends_as_labels() -> None:
    lines = curve.terminal(POINTS, width=70, height=9).splitlines()
    assert len(lines) == 9
    assert max(map(len, lines)) <= 70
    assert "500┤" in lines[1]
    assert lines[-1].strip().startswith("0")
    assert "100k" in lines[-1]
    assert curve.terminal(FLAT, width=70, height=9)
    for too_few in ([], POINTS[:1]):
        assert curve.terminal(too_few, width=70, height=9) == ""


def test_the_png_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / curve.CURVE_FILE
    curve.png(POINTS, path, title="cartpole: impala on CartPole-v1", goal=475.0)
    assert path.read_bytes().startswith(b"\x89PNG")
