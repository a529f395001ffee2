"""Delays start short, grow, are bounded, and are never synchronous."""

from __future__ import annotations

import random
import threading

from hypothesis import given
from hypothesis import strategies as st
from rltraining_trainer.transport import Backoff


@given(st.integers(0, 2**32), st.integers(0, 20), st.floats(0.3, 10.0))
def test_the_nth_delay_is_within_its_bounds(seed: int, failures: int, cap: float) -> None:
    backoff = Backoff(cap=cap, rng=random.Random(seed))
    for _ in range(failures):
        backoff.delay()

    assert 0.05 <= backoff.delay() <= min(cap, 0.3 * 2**failures)

    backoff.reset()
    assert 0.05 <= backoff.delay() <= 0.3


def test_two_of_them_do_not_return_in_step() -> None:
    first, second = Backoff(rng=random.Random(1)), Backoff(rng=random.Random(2))

    assert [first.delay() for _ in range(5)] != [second.delay() for _ in range(5)]


def test_waiting_says_whether_to_stop() -> None:
    stopping = threading.Event()
    assert not Backoff().wait(stopping)

    stopping.set()
    assert Backoff().wait(stopping)
