from __future__ import annotations

from rltraining.snapshot import Eta


def test_time_left_follows_the_growth_since_this_run_was_started() -> None:
    eta = Eta()
    assert eta.update(100.0, None) is None
    assert eta.update(101.0, 40.0) is None, "a resumed run: nothing is known of its speed yet"
    assert eta.update(103.0, 60.0) == 4.0
    assert eta.update(105.0, 100.0) == 0.0


def test_a_learner_that_fell_back_to_its_checkpoint_begins_anew() -> None:
    eta = Eta()
    eta.update(0.0, 50.0)
    assert eta.update(10.0, 10.0) is None
    assert eta.update(20.0, 20.0) == 80.0
