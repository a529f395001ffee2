"""Rates and returns against naive twins."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rltraining_trainer.metrics import EpisodeReturns, RateMeter, SmoothedReturn

batches = st.lists(st.lists(st.floats(-1e3, 1e3, width=32), max_size=12), max_size=12)


@given(batches, st.integers(1, 10), st.integers(1, 10))
def test_episode_returns_are_the_newest_ones(added: list[list[float]], capacity: int, other: int) -> None:
    returns, everything = EpisodeReturns(capacity), []
    assert returns.mean is None
    for batch in added:
        returns.add(torch.tensor(batch))
        everything += batch
        newest = everything[-capacity:]
        assert returns.count == len(everything)
        assert returns.full == (len(everything) >= capacity)
        assert returns.mean == (pytest.approx(sum(newest) / len(newest)) if newest else None)

    state = returns.get_state()
    assert state["newest"].tolist() == everything[-capacity:]
    restored = EpisodeReturns(other)
    restored.set_state(state)
    assert restored.count == len(everything)
    kept = everything[-capacity:][-other:]
    if len(kept) == min(other, len(everything)):
        assert restored.mean == (pytest.approx(sum(kept) / len(kept)) if kept else None)
    restored.add([5.0] * other)
    assert restored.mean == 5.0


def test_smoothed_return_counts_episodes_in_a_row() -> None:
    smoothed = SmoothedReturn(at_least=10)
    smoothed.add([])
    assert (smoothed.value, smoothed.longest) == (None, 0)
    smoothed.add([20, 20, -200])  # 20, 20, -2
    assert smoothed.value == pytest.approx(-2)
    assert smoothed.longest == 2
    smoothed.add(torch.tensor([1000.0]))
    again = SmoothedReturn(at_least=10)
    again.set_state(smoothed.get_state())
    again.add([100, 100])
    assert again.longest == 3
    assert again.value == pytest.approx(0.9 * (0.9 * (0.9 * -2 + 100) + 10) + 10)


def test_a_task_of_negative_returns_does_not_begin_solved() -> None:
    smoothed = SmoothedReturn(at_least=-500)
    smoothed.add([-1200] * 5)
    assert smoothed.longest == 0


def test_rate_over_the_window() -> None:
    meter = RateMeter()
    assert meter.rate is None
    meter.update(1000, now=100)
    assert meter.rate is None
    meter.update(1000, now=100)
    assert meter.rate is None, "no time has passed"
    for second in range(1, 11):
        meter.update(1000 + 10 * second, now=100 + second)
    assert meter.rate == 10
    for second in range(11, 16):
        meter.update(1100, now=100 + second)
    assert meter.rate == 0, "what was before the window is forgotten"


def test_a_rate_is_that_of_the_silence_after_a_long_one() -> None:
    meter = RateMeter()
    assert meter.rate_at(0, now=100) is None
    for second in range(0, 61, 20):
        meter.update(10 * second, now=100 + second)
    assert meter.rate_at(600, now=160) == 10
    assert meter.rate_at(600, now=199) == 10, "updates are 20 s apart, so another one may come"
    assert meter.rate_at(600, now=201) == 0
    assert meter.rate_at(641, now=201) == 1, "the total has grown without an update"


@given(st.lists(st.floats(0.0001, 3), min_size=1, max_size=300))
def test_a_steady_rate_is_found_however_often_it_is_updated(gaps: list[float]) -> None:
    meter, now = RateMeter(), 50.0
    meter.update(7 * now, now)
    for gap in gaps:
        now += gap
        meter.update(7 * now, now)
    assert meter.rate == pytest.approx(7, rel=1e-6)
    assert len(meter._marks) <= 2 * 50 + 3
