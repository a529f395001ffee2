"""The learner's loop: what it does in a round that is decided with other learners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rltraining_trainer.group import GroupChanged, GroupDecision
from rltraining_trainer.roles.context import Context, read_job
from rltraining_trainer.roles.learner import Learner
from rltraining_trainer.roles.progress import Experience
from rltraining_trainer.transport import Stopped

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

    def __init__(self, *rounds: GroupDecision | GroupChanged) -> None:
        self._rounds = iter(rounds)
        self.ready: list[bool] = []
        self.asked: list[dict[str, bool]] = []

    def form(self, stopping: Any) -> None:
        """There is one."""

    def begin(
        self,
        normalizer: float,
        done: bool,
        *,
        update: bool,
        hold: bool,
        checkpoint: bool,
        total_steps: int | None,
    ) -> GroupDecision:
        self.ready.append(update)
        self.asked.append({"done": done, "hold": hold, "checkpoint": checkpoint})
        round_ = next(self._rounds)
        if isinstance(round_, GroupChanged):
            raise round_
        return round_

    def sum(self, gradient: Any, count: float) -> float:
        return count

    def barrier(self) -> None:
        """All are here."""


def make_learner(tmp_path: Path, index: int, job: dict[str, Any] = JOB, learners: int = 2) -> Learner:
    """One of them; closed."""
    (tmp_path / "job.json").write_text(json.dumps(job))
    context = Context(
        job=read_job(tmp_path / "job.json"),
        job_file=tmp_path / "job.json",
        token="secret",
        pod=f"pole-learner-{index}",
        index=index,
        http_port=0,
        learners=("http://a:1", "http://b:2")[:learners],
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


def learnt(
    learner: Learner, monkeypatch: pytest.MonkeyPatch, *rounds: GroupDecision | GroupChanged
) -> list[Any]:
    """The batches that are learnt from in these rounds and a last one."""
    batches: list[Any] = []
    monkeypatch.setattr(learner, "_group", Rounds(*rounds, GroupDecision(1.0, done=True)))
    monkeypatch.setattr(learner._flow, "learn", lambda batch, *rest: batches.append(batch) or {})
    learner.train()
    return batches


def test_a_learner_waits_with_its_batch_until_the_first_one_may_draw(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the second learner would learn before `minimum`, and beyond `samplesPerInsert`."""
    wait, go = GroupDecision(1.0, done=False, update=False), GroupDecision(1.0, done=False, update=True)

    assert learnt(learner, monkeypatch, wait, wait, go, wait, go) == [1, 2]
    assert not any(learner._group.ready), "that is not this learner's to say"  # type: ignore[union-attr]


def test_a_schedule_follows_a_stop_rule_that_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the end that the job began with, all steps after it would be made at rate 0."""

    def job(steps: int) -> dict[str, Any]:
        impala = {"learningRate": 0.002, "learningRateSchedule": "Linear"}
        spec = {
            **JOB["spec"],
            "algorithm": {"impala": impala},
            "learner": {},
            "stop": {"environmentSteps": steps},
        }  # type: ignore[dict-item]
        return {**JOB, "spec": spec}

    learner = make_learner(tmp_path, 0, job(1000), learners=1)
    monkeypatch.setattr(learner._flow, "next_batch", lambda timeout: None)
    learner._update(leaving=False)
    rates = [learner._flow.algorithm.learning_rate(1000)]

    (tmp_path / "job.json").write_text(json.dumps(job(4000)))
    learner._live.look(1e9)
    learner._update(leaving=False)
    rates.append(learner._flow.algorithm.learning_rate(1000))

    assert rates == pytest.approx([0.0, 0.0015])


def test_every_learner_takes_the_end_of_schedules_from_the_first(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learners that update in step must make the same step, also before each has read a change of the job."""
    monkeypatch.setattr(
        learner, "_group", Rounds(GroupDecision(1.0, done=False, update=False, total_steps=70))
    )
    learner._update(leaving=False)

    assert learner._flow.algorithm.total_steps == 70


def test_a_batch_outlives_its_group(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert learnt(learner, monkeypatch, GroupChanged("one died"), GroupDecision(1.0, done=False)) == [1]


def test_a_batch_is_dropped_where_all_go_back_to_a_checkpoint(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(learner._flow), "shares_whole", False)
    assert learnt(learner, monkeypatch, GroupChanged("one died"), GroupDecision(1.0, done=False)) == [2]


def test_learners_that_do_not_stay_together_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(tmp_path, 0)
    assert learner.report().warnings == ()

    monkeypatch.setattr(learner._group, "_failed_rounds", 3)
    monkeypatch.setattr(learner._group, "_reason", "connection refused")

    (warning,) = learner.report().warnings
    assert warning.reason == "LearnersApart"
    assert warning.message == "the learners do not stay together: connection refused"


SAVE, IDLE, DONE = (
    GroupDecision(0.0, done=False, update=False, checkpoint=True),
    GroupDecision(0.0, done=False, update=False),
    GroupDecision(0.0, done=True),
)


class Holder:
    """A learner that keeps a slice of the parameters, and what it does in rounds."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: int, **more: Any) -> None:
        spec = JOB["spec"] | {"algorithm": {"a2c": {}}, "checkpoint": {"everySeconds": 3600}} | more
        self.learner = make_learner(tmp_path, index, JOB | {"spec": spec})
        self.flow: Any = self.learner._flow
        self.record: Any = self.learner._record
        self.done: list[str] = []
        self._set = monkeypatch.setattr
        monkeypatch.setattr(self.flow, "next_batch", lambda timeout: None)
        monkeypatch.setattr(self.flow, "collect", lambda reduce: self.done.append("collect"))
        monkeypatch.setattr(self.flow, "part", lambda: self.done.append("part"))
        monkeypatch.setattr(self.flow, "share", lambda rank, size: self.done.append("share"))
        monkeypatch.setattr(self.flow, "learn", lambda *batch: self.done.append("learn") or {})
        if self.record is not None:
            save = self.record.save

            def save_too() -> None:
                self.done.append("save")
                save()

            monkeypatch.setattr(self.record, "save", save_too)
            monkeypatch.setattr(self.record._checkpoints, "submit", lambda step, state: None)

    def train(self, *rounds: GroupDecision | GroupChanged) -> list[str]:
        """What it does; ``group.asked`` is what it asked for in each round."""
        self.group = Rounds(*rounds)
        self._set(self.learner, "_group", self.group)
        self.learner.train()
        return self.done

    def live(self, steps: int) -> None:
        """These come from samplers before the next look."""
        self.flow._experiences.append(Experience(steps, torch.zeros(0), 0, 0))


@pytest.fixture(params=[0, 1], ids=["the first", "the second"])
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Holder:
    return Holder(tmp_path, monkeypatch, request.param)


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Holder:
    return Holder(tmp_path, monkeypatch, 0)


def test_a_checkpoint_is_collected_by_all_and_then_saved_once_by_the_first(holder: Holder) -> None:
    saved = ["save"] if holder.record is not None else []
    assert holder.train(IDLE, SAVE, IDLE, DONE) == ["collect", *saved]


def test_a_checkpoint_is_of_the_time_before_the_update_of_its_round(first: Holder) -> None:
    both = SAVE._replace(update=True)
    assert first.train(both, DONE) == ["collect", "save", "learn"]


def test_the_first_asks_for_a_checkpoint_when_it_is_time_for_one(
    first: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first.record, "_next_checkpoint", 0.0)
    first.train(SAVE, IDLE, DONE)
    assert [asked["checkpoint"] for asked in first.group.asked] == [True, False, False]


def test_the_run_is_over_when_its_last_checkpoint_is_there(first: Holder) -> None:
    """A holder that was lost before would otherwise take the end with it."""
    first.live(100)
    assert first.train(IDLE, SAVE, DONE) == ["collect", "save"]
    assert first.group.asked[1:] == [
        {"done": False, "hold": True, "checkpoint": True},
        {"done": True, "hold": True, "checkpoint": False},
    ]
    assert first.record.stop_reason is not None


def test_what_comes_after_the_last_checkpoint_does_not_count(first: Holder) -> None:
    first.live(100)
    assert first.record.counters().environment_steps == 0
    first.flow.tend = lambda now: first.live(1)
    first.train(IDLE, SAVE, DONE)
    assert first.record.counters().environment_steps == first.record._newest["progress"]["environment_steps"]


def test_a_holder_that_is_lost_with_the_last_checkpoint_takes_all_back_and_the_run_goes_on(
    first: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(reduce: Any) -> None:
        monkeypatch.setattr(first.flow, "collect", lambda reduce: first.done.append("collect"))
        raise GroupChanged("one died")

    monkeypatch.setattr(first.flow, "collect", lose)
    first.live(100)
    first.train(IDLE, SAVE, IDLE, DONE)
    assert first.record.counters().environment_steps == 0
    assert first.record.stop_reason is None
    assert first.group.asked[2] == {"done": False, "hold": False, "checkpoint": False}
    assert first.done == ["part", "share"]


def test_whoever_is_told_to_end_asks_for_a_checkpoint_of_all_first(holder: Holder) -> None:
    holder.learner._context.stopping.set()
    with pytest.raises(Stopped, match="after a checkpoint of all"):
        holder.train(SAVE)
    assert holder.group.asked[0]["checkpoint"]
    holder.learner.save()
    assert holder.done == (["collect", "save"] if holder.record is not None else ["collect"])


def test_whoever_is_told_to_end_while_another_is_lost_ends_without_a_checkpoint(holder: Holder) -> None:
    holder.learner._context.stopping.set()
    with pytest.raises(Stopped):
        holder.train(GroupChanged("one died"))
    assert holder.done == []


def test_when_a_holder_is_lost_all_go_back_to_the_newest_checkpoint(first: Holder) -> None:
    learner = first.learner
    first.live(10)
    first.train(IDLE, SAVE, DONE)
    kept = learner._flow.algorithm.get_state()["parameters"].clone()
    first.live(20)
    first.train(IDLE, DONE)
    assert first.record.counters().environment_steps == 30
    learner._flow.algorithm.parameters.add_(1.0)
    version = learner._models.version
    before = first.done[:]

    first.train(GroupChanged("one died"), DONE)
    assert first.record.counters().environment_steps == 10
    assert first.done == [*before, "part", "share"]
    assert learner._models.version == version + 1, "versions never come twice"
    _, published = learner._models.newer_than(0)
    assert published is not None
    assert torch.equal(published, kept[: len(published)])
    assert torch.equal(learner._flow.algorithm.parameters, kept[: len(published)])


def test_without_a_checkpoint_all_go_back_to_the_beginning(first: Holder) -> None:
    first.live(20)
    first.train(IDLE, DONE)
    first.train(GroupChanged("one died"), DONE)
    first.train(GroupChanged("and another"), DONE)
    assert first.record.counters().environment_steps == 0
    assert first.flow.metrics()["gradients/applied"] == 0


def test_holders_evaluate_at_checkpoints_and_void_evaluations_on_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Holder(tmp_path, monkeypatch, 0, evaluation={"everySteps": 10})
    evaluator, tasks = first.record._evaluations._evaluator, []
    monkeypatch.setattr(evaluator, "start", lambda task: tasks.append(task.step))
    first.live(9)
    first.train(IDLE, IDLE, DONE)
    first.live(1)
    first.train(IDLE, SAVE, IDLE, DONE)
    assert [asked["checkpoint"] for asked in first.group.asked] == [False, True, False, False]
    assert (first.done, tasks) == (["collect", "save"], [10])
    first.live(10)
    first.train(IDLE, IDLE, DONE)
    assert not any(asked["checkpoint"] for asked in first.group.asked), "at most one in COLLECT_SECONDS"
    first.train(GroupChanged("one died"), DONE)
    assert first.record.counters().environment_steps == 10
    assert first.record._evaluations.is_due(10), "its result did not come before the checkpoint"
    first.record.close()
