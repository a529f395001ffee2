"""Discarded episodes are counted once, despite repeats and restarts, and the first error is shown."""

from __future__ import annotations

from typing import Any

import pytest
from rltraining_trainer.environments import StepperStats
from rltraining_trainer.roles.discards import Discards, discard_fields


def sent(discards: Discards, **message: Any) -> Any:
    answer = discards.watched({"push": lambda sender, payload: ("pushed", sorted(payload))})
    return answer["push"]("maze-sampler-0", message)


def report(life: str, count: int) -> dict[str, Any]:
    return discard_fields(
        "maze-sampler-0", life, StepperStats(discarded=count, first_error=f"broken in {life}")
    )


def test_a_report_is_of_a_whole_life_and_may_come_again() -> None:
    discards = Discards()
    for message in (report("a", 1), report("a", 3), report("a", 1), report("b", 2)):
        assert sent(discards, steps=5, **message)[0] == "pushed"
    assert discards.total == 5
    (warning,) = discards.warnings()
    assert warning.message.endswith("The first error: maze-sampler-0: broken in a")


def test_nothing_is_reported_before_there_is_an_error() -> None:
    discards = Discards()
    assert discard_fields("maze-sampler-0", "a", StepperStats(steps=9)) == {}
    assert discards.fields() == {}
    assert not [*discards.warnings()]


def test_neither_a_restart_nor_a_learner_in_between_counts_twice() -> None:
    first, other = Discards(), Discards()
    sent(other, **report("a", 2))
    sent(first, **other.fields())
    restarted = Discards()
    restarted.set_state(first.get_state())
    sent(restarted, **other.fields())
    sent(restarted, **report("a", 3))
    assert restarted.total == 3


def test_a_report_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="discarded must be a dict"):
        sent(Discards(), discarded=3, first_error="")
