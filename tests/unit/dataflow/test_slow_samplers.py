"""Samplers with data that is always too old."""

from __future__ import annotations

from manual_clock import Clock
from rltraining_trainer.dataflow.slow_samplers import MEMORY_SECONDS, MOST, SlowSamplers


def test_a_sampler_is_named_after_some_old_items_in_a_row_until_one_is_used_or_it_is_silent() -> None:
    clock = Clock()
    slow = SlowSamplers(clock)
    for _ in range(MOST - 1):
        slow.dropped("b")
        slow.dropped("a")
    assert slow.warnings("unrolls", 8) == ()
    slow.dropped("a")
    slow.used("b")
    slow.dropped("b")
    (warning,) = slow.warnings("unrolls", 8)
    assert warning.message.startswith(
        "a contributes nothing: the parameters of its last 10 unrolls were more than 8"
    )

    clock.now += MEMORY_SECONDS + 1
    assert slow.warnings("unrolls", 8) == (), "it may have been removed"
    slow.dropped("a")
    assert slow.warnings("unrolls", 8)
    slow.used("a")
    assert slow.warnings("unrolls", 8) == ()
