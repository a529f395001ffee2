from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rltraining_api.curve import CURVE_POINTS_MAX
from rltraining_trainer.metrics import LearningCurve
from through_a_file import stored

MOMENTS = st.lists(
    st.tuples(
        st.integers(0, 50),  # steps since the previous point
        st.floats(0, 3),  # seconds since the previous point
        st.one_of(st.none(), st.floats()),
    ),
    max_size=400,
)


@given(moments=MOMENTS)
def test_any_run_has_few_points_of_growing_steps_with_its_first_and_its_newest(moments: list[Any]) -> None:
    curve, steps, seconds, added = LearningCurve(), 0, 0.0, []
    for more_steps, more_seconds, mean_return in moments:
        steps, seconds = steps + more_steps, seconds + more_seconds
        curve.add(steps, seconds, mean_return)
        if mean_return is not None and math.isfinite(mean_return):
            added.append(steps)
    points = [point.environment_steps for point in curve.points]
    assert points == sorted(set(points))
    assert len(points) <= CURVE_POINTS_MAX
    assert points[:1] == added[:1]
    assert points[-1:] == added[-1:]


@pytest.mark.parametrize("count", [1, 99, 100, 101, 20_000])
def test_points_are_spread_evenly_over_a_run_of_any_length(count: int) -> None:
    curve = LearningCurve()
    for i in range(count):
        curve.add(i, i / 4, 1.0)
    gaps = [after.seconds - before.seconds for before, after in pairwise(curve.points)]
    assert len(curve.points) >= min(count, CURVE_POINTS_MAX // 2)
    assert max(gaps, default=0) < 2 * min(gaps[:-1], default=1)


def test_a_learner_that_goes_back_draws_on_from_there() -> None:
    straight, lost = LearningCurve(), LearningCurve()
    for i in range(150):
        straight.add(i, i / 3, float(i))
        lost.add(i, i / 3, float(i))
    checkpoint = stored(lost.get_state())
    for i in range(150, 300):
        lost.add(i, i / 3, -1.0)
        straight.add(i, i / 3, float(i))
    lost.set_state(checkpoint)
    assert lost.points[-1].environment_steps == 149
    for i in range(150, 300):
        lost.add(i, i / 3, float(i))
    assert lost.points == straight.points
