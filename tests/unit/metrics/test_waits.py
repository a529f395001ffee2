"""The longest wait between two points of the curves, and the sum of all."""

from __future__ import annotations

from rltraining_trainer.metrics import WaitMeter


def test_the_longest_wait_since_the_last_look() -> None:
    waits = WaitMeter()
    assert waits.take() == 0.0
    for begin, end in ((1.0, 1.5), (2.0, 5.0), (6.0, 7.0)):
        waits.begin(begin)
        waits.end(end)
    assert waits.take() == 3.0
    assert waits.take() == 0.0


def test_a_wait_that_goes_on_counts_from_its_beginning_when_it_ends() -> None:
    waits = WaitMeter()
    waits.begin(1.0)
    assert waits.take() == 0.0
    waits.begin(2.0)
    waits.end(4.0)
    waits.end(9.0)
    assert waits.take() == 3.0


def test_the_total_of_all_waits_holds_the_one_that_is_under_way() -> None:
    waits = WaitMeter()
    assert waits.total(1.0) == 0.0
    waits.begin(1.0)
    assert waits.total(3.0) == 2.0
    waits.end(5.0)
    waits.begin(7.0)
    assert waits.take() == 4.0, "reports of the longest wait change nothing"
    assert waits.total(7.5) == 4.5
