"""Learner 0's counts of the samples that other learners have drawn from the replay."""

from __future__ import annotations

from rltraining_trainer.dataflow.replay import ReplayStats
from rltraining_trainer.world.replay import SampleCounts


def stats(**counts: int) -> ReplayStats:
    nothing = {name: 0 for name in ReplayStats._fields}
    return ReplayStats(**(nothing | {"sizes": {}} | counts))  # type: ignore[arg-type]


def report(others: SampleCounts, incarnation: str, **counts: int) -> None:
    names = ("drawn", "applied", "stale", "priorities_lost", "outstanding")
    others.answer("learner-1", {"incarnation": incarnation, **dict.fromkeys(names, 0), **counts})


def test_samples_of_all_learners_are_added_up() -> None:
    others = SampleCounts(list)
    report(others, "a", drawn=10, applied=7, outstanding=3)
    report(others, "a", drawn=20, applied=15, outstanding=5)

    total = others.total(stats(drawn=100, applied=90, outstanding=10, size=5))

    assert (total.drawn, total.applied, total.outstanding, total.size) == (120, 105, 15, 5)


def test_outstanding_priorities_of_a_dead_learner_are_lost() -> None:
    others = SampleCounts(list)
    report(others, "a", drawn=20, applied=15, outstanding=5)
    report(others, "b", drawn=4, applied=4)

    total = others.total(stats())

    assert (total.drawn, total.applied, total.priorities_lost, total.outstanding) == (24, 19, 5, 0)


def test_the_answer_has_the_addresses_of_all_shards() -> None:
    others = SampleCounts(lambda: [{"name": "sampler-0"}])
    counts = dict.fromkeys(("drawn", "applied", "stale", "priorities_lost", "outstanding"), 0)

    answer = others.answer("learner-1", {"incarnation": "a", **counts})

    assert answer == [{"name": "sampler-0"}]


def test_samples_of_the_other_learners_survive_learner_0() -> None:
    lost, others = SampleCounts(list), SampleCounts(list)
    report(lost, "a", drawn=20, applied=15, outstanding=5)
    report(lost, "b", drawn=4, applied=4)
    others.set_state(lost.get_state())
    report(others, "b", drawn=6, applied=6)

    assert (others.total(stats()).drawn, others.total(stats()).priorities_lost) == (26, 5)
