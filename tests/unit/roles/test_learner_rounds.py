"""The learner's loop: what it does in a round that is decided with other learners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rltraining_trainer.group import GroupChanged, Round
from rltraining_trainer.roles.context import Context, read_job
from rltraining_trainer.roles.learner import Learner

JOB = {
    "apiVersion": "rltraining.dev/v1alpha1",
    "kind": "RLTrainingJob",
    "metadata": {"name": "pole"},
    "spec": {
        "algorithm": {"dqnApex": {}},
        "environment": {"id": "CartPole-v1"},
        "learner": {"replicas": 2},
        "stop": {"environmentSteps": 100},
    },
}


class Rounds:
    """A group whose rounds are decided in advance."""

    rank, size = 1, 2

    def __init__(self, *rounds: Round | GroupChanged) -> None:
        self._rounds = iter(rounds)
        self.ready: list[bool] = []

    def form(self, stopping: Any) -> None:
        """There is one."""

    def begin(self, normalizer: float, done: bool, *, update: bool, hold: bool, checkpoint: bool) -> Round:
        self.ready.append(update)
        round_ = next(self._rounds)
        if isinstance(round_, GroupChanged):
            raise round_
        return round_

    def sum(self, gradient: Any, count: float) -> float:
        return count


def make_learner(tmp_path: Path, index: int) -> Learner:
    """One of two; closed."""
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    context = Context(
        job=read_job(tmp_path / "job.json"),
        job_file=tmp_path / "job.json",
        token="secret",
        pod=f"pole-learner-{index}",
        index=index,
        http_port=0,
        learners=("http://a:1", "http://b:2"),
        replays=(),
        output=tmp_path,
    )
    learner = Learner(context)
    learner.close()
    return learner


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Learner:
    """The second of two, whose flow has a batch whenever it is asked: 1, 2, 3 and so on."""
    learner = make_learner(tmp_path, 1)
    flow = learner._flow
    batches = iter(range(1, 100))
    monkeypatch.setattr(flow, "next_batch", lambda timeout: next(batches))
    monkeypatch.setattr(flow, "normalizer", lambda batch: 1.0)
    return learner


def learnt(learner: Learner, monkeypatch: pytest.MonkeyPatch, *rounds: Round | GroupChanged) -> list[Any]:
    """The batches that are learnt from in these rounds and a last one."""
    batches: list[Any] = []
    monkeypatch.setattr(learner, "_group", Rounds(*rounds, Round(1.0, done=True)))
    monkeypatch.setattr(learner._flow, "learn", lambda batch, *rest: batches.append(batch) or {})
    learner.train()
    return batches


def test_a_learner_waits_with_its_batch_until_the_first_one_may_draw(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the second learner would learn before `minimum`, and beyond `samplesPerInsert`."""
    wait, go = Round(1.0, done=False, update=False), Round(1.0, done=False, update=True)

    assert learnt(learner, monkeypatch, wait, wait, go, wait, go) == [1, 2]
    assert not any(learner._group.ready), "that is not this learner's to say"  # type: ignore[union-attr]


def test_a_batch_outlives_its_group(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert learnt(learner, monkeypatch, GroupChanged("one died"), Round(1.0, done=False)) == [1]


def test_a_batch_is_dropped_where_all_go_back_to_a_checkpoint(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(learner._flow), "shares_whole", False)
    assert learnt(learner, monkeypatch, GroupChanged("one died"), Round(1.0, done=False)) == [2]


def test_learners_that_do_not_stay_together_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(tmp_path, 0)
    assert learner.report().warnings == ()

    monkeypatch.setattr(learner._group, "_fruitless", 3)
    monkeypatch.setattr(learner._group, "_reason", "connection refused")

    (warning,) = learner.report().warnings
    assert warning.reason == "LearnersApart"
    assert warning.message == "the learners do not stay together: connection refused"
