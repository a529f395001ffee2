"""A few points that represent a complete curve."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from rltraining_api.curve import CURVE_POINTS_MAX, CurvePoint, joined, thinned

STEPS = st.lists(st.integers(0, 2000), unique=True, max_size=300).map(sorted)


def curve(steps: list[int]) -> tuple[CurvePoint, ...]:
    return tuple(CurvePoint(environment_steps=n, seconds=n / 10, mean_return=float(n % 7)) for n in steps)


@given(count=st.integers(0, 500), most=st.integers(2, 100))
def test_thinned_points_are_spread_evenly_and_keep_both_ends(count: int, most: int) -> None:
    points = thinned(range(count), most)
    assert len(points) == min(count, most)
    assert points[:1] == tuple(range(count))[:1]
    assert points[-1:] == tuple(range(count))[-1:]
    gaps = [after - before for before, after in pairwise(points)]
    assert max(gaps, default=1) - min(gaps, default=1) <= 1


@given(known=STEPS, said=STEPS, end=st.integers(0, 2000))
def test_a_termination_message_continues_what_is_known_up_to_where_the_run_has_come(
    known: list[int], said: list[int], end: int
) -> None:
    said = [n for n in said if n <= end]
    before, message = thinned(curve(known), CURVE_POINTS_MAX), thinned(curve(said), 20)
    points = joined(before, message, end)
    steps = [point.environment_steps for point in points]
    assert steps == sorted(set(steps))
    assert len(steps) <= CURVE_POINTS_MAX
    assert all(n <= end for n in steps)
    kept = [point.environment_steps for point in before if point.environment_steps <= end]
    assert steps[:1] == (kept or said)[:1]
    assert steps[-1:] == [max([*kept, *said])] if kept or said else steps == []
    assert joined(points, message, end) == points, "heard twice, it changes nothing"
