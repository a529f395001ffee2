"""Draws and insertions keep their ratio, whichever side is faster, and never both block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rltraining_trainer.dataflow.replay.rate_limiter import RateLimiter


@pytest.mark.parametrize(
    ("tolerance", "ratio", "minimum", "batch", "bound"),
    [
        (0.1, 8.0, 1000, 32, 800.0),  # Acme: a tenth of what the first draws are due
        (0.1, 8.0, 100, 64, 128.0),  # two batches at least
        (0.1, 500.0, 10, 64, 500.0),  # one insertion's worth at least
    ],
)
def test_the_bound_never_blocks_both_sides(
    tolerance: float, ratio: float, minimum: int, batch: int, bound: float
) -> None:
    assert RateLimiter(ratio, tolerance, minimum, batch).bound == bound


def test_both_sides_go_up_to_the_bound_and_no_further() -> None:
    limiter = RateLimiter(2.0, 0.5, minimum=100, batch_size=10)  # bound: 100

    assert limiter.insert_limit(0) == 150
    assert limiter.error(150, 0) == -100
    assert limiter.may_sample(100, 90, 10)
    assert limiter.error(100, 100) == 100
    assert not limiter.may_sample(100, 100, 10)
    assert limiter.may_sample(105, 100, 10)
    assert limiter.insert_limit(100) == 200


@given(
    ratio=st.floats(0.01, 100),
    tolerance=st.floats(0.01, 2),
    minimum=st.integers(1, 2000),
    batch=st.integers(1, 512),
    turns=st.lists(st.tuples(st.booleans(), st.integers(1, 400)), max_size=60),
)
def test_any_order_of_turns_stays_within_the_bound_and_somebody_may_always_go_on(
    ratio: float, tolerance: float, minimum: int, batch: int, turns: list[tuple[bool, int]]
) -> None:
    limiter = RateLimiter(ratio, tolerance, minimum, batch)
    inserted = sampled = 0
    for learner, wish in turns:
        limit = limiter.insert_limit(sampled)
        assert limit is not None
        assert limit > inserted or limiter.may_sample(inserted, sampled, batch), "both wait for each other"
        if not learner:
            inserted = max(inserted, min(limit, inserted + wish))
        for _ in range(wish if learner else 0):
            if not limiter.may_sample(inserted, sampled, batch):
                break
            sampled += batch
        assert inserted < minimum or abs(limiter.error(inserted, sampled)) <= limiter.bound + 1e-6
        assert inserted >= minimum or not sampled
