"""The steps of several learners are counted once, also if a learner dies: `LearnerCounts`, `RunPaths` and `Run`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_rounds import DONE, IDLE, SAVE, UPDATE, Learner
from own_runs import Begin, make_context
from rltraining_trainer.transport import Stopped
from rltraining_trainer.world.learner_counts import LearnerCounts

Make = Callable[..., Learner]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes the first or the second of two learners."""
    made: list[Learner] = []

    def make(index: int, **options: Any) -> Learner:
        made.append(Learner(tmp_path / str(len(made)), monkeypatch, index, **options))
        return made[-1]

    yield make
    for learner in made:
        learner.run.close()


def counted(learner: Learner) -> tuple[int, int, int]:
    """Returns updates, steps and episodes of the record."""
    progress = learner.record.counters()
    return progress.updates, progress.environment_steps, progress.episodes


# The table.


def test_a_learner_adds_to_its_own_pair_and_follows_the_others() -> None:
    counts = LearnerCounts(1, 3)
    counts.add(10, 1)
    assert counts.follow((5, 2, 10, 1, 7, 0)) == (12, 2)
    assert counts.follow(counts.values) == (0, 0)
    assert counts.follow((4, 1, 10, 1, 8, 0)) == (1, 0), "an older count has no effect"
    counts.add(10, 0)
    assert counts.values == (5, 2, 20, 1, 8, 0)


def test_a_restarted_learner_adds_its_counts_to_those_before() -> None:
    counts = LearnerCounts(1, 2)
    counts.add(3, 4)  # before it joins
    assert counts.follow((6, 0, 100, 2)) == (106, 2)
    counts.add(10, 0)
    assert counts.values == (6, 0, 113, 6)


def test_a_restarted_learner_adds_nothing_to_its_own_count_in_a_round() -> None:
    # Learner 1 completed a round that learner 0 did not, and learner 2 has restarted with the state of learner 0.
    tables = [LearnerCounts(index, 3) for index in range(3)]
    for table, known in zip(tables, ((90, 4), (100, 5), (90, 4)), strict=True):
        table.follow((0, 0, 0, 0, *known))
    tables[2].add(200, 0)
    for _ in range(2):
        largest = [max(values) for values in zip(*(table.values for table in tables), strict=True)]
        for table in tables:
            table.follow(largest)
    assert [table.values[4:] for table in tables] == [(290, 5)] * 3, "at most 100 + 200 steps, and 5 episodes"


def test_large_counts_are_exact() -> None:
    counts = LearnerCounts(0, 2)
    counts.add(2**53 - 2, 0)
    counts.add(1, 0)
    assert counts.follow((0, 0, 2**40 + 1, 0)) == (2**40 + 1, 0)
    assert counts.values[0] == 2**53 - 1


@pytest.mark.parametrize("learners", [1, 2, 3])
def test_a_checkpoint_may_be_of_another_number_of_learners(learners: int) -> None:
    counts = LearnerCounts(0, learners)
    counts.add(1, 1)
    counts.set([5.0, 1.0, 7.0, 2.0])
    assert counts.values == (5, 1, 7, 2, 0, 0)[: 2 * learners]
    counts.set(())
    assert counts.values == (0, 0) * learners


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_or_counted_twice_whoever_dies(seed: int) -> None:
    chance, learners = random.Random(seed), 3
    tables = [LearnerCounts(index, learners) for index in range(learners)]
    made = [0] * learners  # all steps of each learner that should be counted
    sent = made[:]  # the steps that other learners have received
    recorded = 0  # in learner 0
    saved = (recorded, tables[0].values)
    for _ in range(200):
        event, who = chance.choice(["count", "count", "round", "save", "death"]), chance.randrange(learners)
        if event == "count":
            tables[who].add(steps := chance.randrange(10), 0)
            made[who] += steps
            recorded += steps if who == 0 else 0
        elif event == "round":
            largest = [max(values) for values in zip(*(table.values for table in tables), strict=True)]
            grown = [table.follow(largest)[0] for table in tables]
            recorded += grown[0]
            sent = made[:]
            assert recorded == sum(made)
        elif event == "save":
            saved = (recorded, tables[0].values)
        else:
            # Learner 0 begins with its checkpoint. Then another learner sends its state to all.
            tables[who] = LearnerCounts(who, learners)
            made[who] = sent[who]
            if who == 0:
                recorded = saved[0]
                tables[who].set(saved[1])
                made[who] = max(sent[who], int(saved[1][0]))
            source = chance.choice([index for index in range(learners) if index != who])
            grown = [table.follow(tables[source].values)[0] for table in tables]
            recorded += grown[0]
            sent[source] = made[source]


# Rounds and states.


def test_steps_of_another_learner_come_by_the_round_and_its_returns_by_a_report(make: Make) -> None:
    first, other = make(0), make(1)
    assert other.run._news() is None
    other.run.count(30, [4.0, 6.0], episodes=3)
    news = other.run._news()
    assert news is not None
    assert (news["steps"], news["episodes"], news["returns"].tolist()) == (0, 0, [4.0, 6.0])
    other.train(IDLE, DONE)
    assert other.group.values[-1] == (0, 0, 30, 3)
    other.run.count(5)
    assert other.run._news() is None, "there are no returns"

    # In either order, both count once.
    round_ = IDLE._replace(largest=other.group.values[-1])
    report = {"incarnation": "other", "sequence": 1, **news}
    first.train(round_, round_, DONE._replace(largest=round_.largest))
    assert counted(first) == (0, 30, 3)
    assert first.record.counters().mean_return is None
    first.run.paths.reports.report("other", report)
    first.train(round_, DONE._replace(largest=round_.largest))
    assert counted(first) == (0, 30, 3)
    assert first.record.counters().mean_return == 5.0
    assert first.record.counters().policy_lag is None


def test_counts_of_a_learner_that_dies_stay(make: Make) -> None:
    first, other = make(0), make(1)
    other.run.count(30, [1.0])
    other.train(IDLE, DONE)
    first.train(IDLE._replace(largest=other.group.values[-1]), IDLE, DONE)
    assert counted(first) == (0, 30, 1)

    # It restarts, and takes its counts from the other one.
    again = make(1)
    again.run.paths.set_common_state(first.run.paths.get_common_state())
    again.run.count(7)
    again.train(IDLE, DONE)
    assert again.group.values[-1] == (0, 0, 37, 1)
    first.train(IDLE._replace(largest=again.group.values[-1]), IDLE, DONE)
    assert counted(first) == (0, 37, 1)


def test_steps_that_learner_0_has_counted_survive_its_restart(make: Make) -> None:
    first, other = make(0), make(1)
    first.run.count(5, [1.0])
    other.run.count(3)
    first.receive(100)  # in a report of totals, which the sampler sends again
    first.train(IDLE, IDLE, DONE)
    other.train(UPDATE._replace(largest=(*first.group.values[-1][:2], 3, 0)), DONE, batches=[7])

    # It restarts without a checkpoint, and joins the other learner twice.
    again = make(0)
    for _ in range(2):
        again.run.paths.set_common_state(other.run.paths.get_common_state())
        again.train(IDLE, DONE)
    assert counted(again) == (1, 8, 1)
    assert again.record.progress._late_steps == 8, "they do not count for the rate"
    assert again.group.values[-1] == (5, 1, 3, 0)


def test_learner_0_keeps_its_counts_if_another_learner_knows_fewer_steps(make: Make) -> None:
    first, other = make(0), make(1)
    first.run.count(5, [1.0])
    first.train(IDLE, DONE)
    other.run.count(2)  # after the last round
    first.run.paths.set_common_state(other.run.paths.get_common_state())
    first.train(IDLE, DONE)
    assert counted(first) == (0, 7, 1)
    assert first.group.values[-1] == (5, 1, 2, 0)


def test_a_checkpoint_has_the_counts_of_its_round(make: Make) -> None:
    first = make(0)
    first.run.count(5)
    first.train(SAVE._replace(largest=(5, 0, 40, 2)), IDLE, DONE)
    (state,) = first.checkpoints
    assert state["progress"]["environment_steps"] == 45
    assert state["flow"]["counts"] == [5, 0, 40, 2]

    # A learner that continues from the checkpoint counts only later steps.
    again = make(0)
    again.record._set_state(state, "of a test")
    again.run.paths.set_common_state({**first.run.paths.get_common_state(), "counts": [6, 0, 40, 2]})
    again.train(IDLE._replace(largest=(6, 0, 41, 3)), IDLE, DONE)
    assert counted(again) == (0, 47, 3)


@pytest.mark.parametrize("how", ["train", "active"])
def test_the_end_of_a_run_has_the_steps_of_its_last_round(make: Make, how: str) -> None:
    first = make(0)
    last = (99, 0, 30, 2)
    if how == "train":
        first.run.count(99)
        first.train(
            IDLE._replace(largest=(99, 0, 20, 1)), SAVE._replace(largest=last), DONE._replace(largest=last)
        )
    else:
        first.loop(IDLE)
        first.run.update(99)
        first.loop(IDLE._replace(largest=(99, 0, 20, 1)), DONE._replace(largest=last))
    first.run.finish()
    assert first.run.report().stop_reason is not None
    assert counted(first)[1:] == (129, 2)
    (state,) = first.checkpoints
    assert state["progress"]["environment_steps"] == 129
    assert state["flow"]["counts"] == list(last)
    first.run.close()
    lines = (first.context.output / "progress.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["environmentSteps"] == 129, "the curves end where the run ends"


def test_learners_with_slices_return_to_the_counts_of_the_checkpoint(make: Make) -> None:
    first, other = make(0, slices=True), make(1, slices=True)
    first.run.count(5)
    first.train(SAVE._replace(largest=(5, 0, 10, 1)), DONE)
    other.run.count(10, [], episodes=1)
    other.train(SAVE._replace(largest=(5, 0, 10, 1)), DONE)

    # Both count updates that are lost with a slice.
    first.run.count(6)
    first.train(IDLE._replace(largest=(11, 0, 30, 3)), IDLE, DONE)
    assert counted(first) == (0, 41, 3)
    other.run.count(20, [], episodes=2)
    first.record.rollback()
    other.run.paths.set_common_state(first.run.paths.get_common_state())
    assert first.run.paths.counts.values == other.run.paths.counts.values == (5, 0, 10, 1)
    first.train(IDLE, DONE)
    assert counted(first) == (0, 15, 1)
    other.run.count(1)
    assert other.run.paths.counts.values == (5, 0, 11, 1)


def test_the_last_update_before_the_signal_to_end_is_counted(tmp_path: Path) -> None:
    begin = Begin(make_context(tmp_path))
    run = begin()
    assert run.active()
    run.update(10, [1.0])
    begin.context.stopping.set()
    with pytest.raises(Stopped):
        run.active()
    run.save()
    run.close()
    begin.context.stopping.clear()
    again = begin()
    progress = again.report().progress
    assert (progress.updates, progress.environment_steps, progress.episodes) == (1, 10, 1)
    again.close()


def test_one_learner_sends_and_follows_only_its_own_counts(make: Make) -> None:
    alone = make(0, learners=1)
    alone.run.count(5, torch.tensor([1.0]))
    alone.train(IDLE, DONE)
    assert alone.group.values == [(5, 1), (5, 1)]
    assert counted(alone) == (0, 5, 1)
