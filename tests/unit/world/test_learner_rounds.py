"""`Run.train`: a learner's actions in a round that several learners decide together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from learner_rounds import DONE, IDLE, SAVE, UPDATE, Algorithm, Learner
from own_runs import Begin, make_context
from rltraining_trainer.errors import Diverged
from rltraining_trainer.group import GroupChanged
from rltraining_trainer.roles import record
from rltraining_trainer.transport import Stopped, Traffic
from rltraining_trainer.world.run import Run


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Learner]:
    """The second of two learners; learner 0 leads."""
    learner = Learner(tmp_path, monkeypatch, 1, leads=True)
    yield learner
    learner.run.close()


@pytest.fixture(params=[0, 1], ids=["the first", "the second"])
def holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Learner]:
    """A learner with a slice of the parameters."""
    learner = Learner(tmp_path, monkeypatch, request.param, slices=True)
    yield learner
    learner.run.close()


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Learner]:
    """The first learner, with a slice of the parameters."""
    learner = Learner(tmp_path, monkeypatch, 0, slices=True)
    yield learner
    learner.run.close()


def test_a_learner_keeps_its_batch_until_the_first_one_may_sample(learner: Learner) -> None:
    """Otherwise the second learner would learn before `minimum`, and exceed `samplesPerInsert`."""
    learner.train(IDLE, IDLE, UPDATE, IDLE, UPDATE, DONE, batches=range(1, 100))
    assert learner.batches == [1, 2]
    assert not any(learner.group.ready), "only learner 0 decides"


@pytest.mark.parametrize("empty", [None, []], ids=["None", "empty list"])
def test_a_learner_without_data_takes_part_in_the_updates_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: Any
) -> None:
    learner = Learner(tmp_path, monkeypatch, 1)
    learner.train(UPDATE, UPDATE, DONE, batches=[empty, [7]])
    assert learner.batches == [None, [7]]
    assert learner.group.ready == [False, True, False]
    assert learner.run.models.version == 1 + 2, "each update is published"
    learner.run.close()


def test_a_path_that_waits_for_data_holds_the_update_of_all_learners(learner: Learner) -> None:
    learner.path.delays = True
    learner.train(IDLE, DONE)
    assert [request["hold"] for request in learner.group.requests] == [True, True]
    assert learner.batches == []


def test_a_schedule_follows_a_stop_rule_that_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise all steps after the original end would be made at rate 0."""
    learner = Learner(tmp_path, monkeypatch, 0, learners=1, stop={"environmentSteps": 1000})
    run, group, rates = learner.run, learner.run.group, []
    for steps in (1000, 4000):
        make_context(tmp_path, stop={"environmentSteps": steps})
        learner.live.look(1e9 + steps)
        assert run.group is group
        run._train_round(lambda timeout: None, learner._update, False)
        rates.append(learner.algorithm.learning_rate(1000))
    learner.run.close()
    assert rates == pytest.approx([0.0, 0.0015])


def test_checkpoints_follow_settings_that_change_while_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = Learner(tmp_path, monkeypatch, 0, learners=1, checkpoint={"everySeconds": 3600})
    learner.algorithm.updates += 1
    saved = learner.record._next_checkpoint - 3600
    due = []
    for number, every in enumerate((3600, 100, 200)):
        make_context(tmp_path, checkpoint={"everySeconds": every, "keep": 7 + number})
        learner.live.look(1e9 + 10 * number)
        learner.record.look(None, 1e9 + 10 * number)
        due.append([learner.record.wants_checkpoint(saved + age) for age in (99, 150, 201, 3601)])
    learner.run.close()
    assert due == [
        [False, False, False, True],
        [False, True, True, True],
        [False, False, True, True],
    ], "the interval counts from the last checkpoint, not from its change"
    assert learner.record._store.keep == 9


def test_the_log_of_the_learner_has_a_line_of_progress_every_30_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    learner, begin = Learner(tmp_path, monkeypatch, 0, learners=1), time.monotonic()
    with caplog.at_level("INFO"):
        for seconds in (1, 31, 32, 60, 62):
            learner.record.look(None, begin + seconds)
    learner.run.close()
    assert caplog.messages.count("no steps have arrived from samplers yet") == 2


def test_every_learner_takes_the_end_of_schedules_from_the_first(learner: Learner) -> None:
    """All learners must make the same update, even before each has read a change of the job."""
    learner.train(IDLE._replace(total_steps=70), DONE._replace(total_steps=70))
    assert learner.algorithm.total_steps == 70


def test_a_batch_survives_its_group(learner: Learner) -> None:
    learner.train(GroupChanged("one died"), UPDATE, DONE, batches=range(1, 100))
    assert learner.batches == [1]


def test_a_batch_of_a_path_that_does_not_keep_it_is_dropped_with_its_group(learner: Learner) -> None:
    """Samplers would make gradients with the parameters before this update, and the next update would use them."""
    learner.path.keeps_batch = False
    learner.train(GroupChanged("one died"), UPDATE, DONE, batches=range(1, 100))
    assert learner.batches == [2]


def test_an_update_after_which_a_learner_is_lost_is_published(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise samplers of this learner would act with older parameters than the others."""
    ticks: list[int] = []
    monkeypatch.setattr(learner.path, "tick", lambda: ticks.append(learner.run.models.version))
    monkeypatch.setattr(learner.path, "leave_group", lambda: ticks.append(0))

    def update(batch: Any, reduce: Any) -> dict[str, float]:
        Learner._update(learner, batch, reduce)
        raise GroupChanged("one died")

    monkeypatch.setattr(learner, "_update", update)
    learner.train(UPDATE, DONE, batches=[1])
    assert ticks[:2] == [2, 0], "samplers are answered before the next group forms"
    _, published = learner.run.models.newer_than(0)
    assert published is not None
    assert torch.equal(published, learner.algorithm.parameters)


def test_a_term_of_an_update_may_have_a_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(tmp_path, monkeypatch, 0)

    def update(batch: Any, reduce: Any) -> dict[str, torch.Tensor]:
        return {"loss": torch.ones((), requires_grad=True) * 2}

    monkeypatch.setattr(learner, "_update", update)
    learner.receive(10)
    monkeypatch.setattr(learner.algorithm, "updates", 1)
    learner.train(UPDATE, DONE, batches=[1])
    assert learner.record.point["loss/loss"] == 2.0
    learner.run.close()


def test_a_batch_is_dropped_if_all_learners_roll_back_to_a_checkpoint(holder: Learner) -> None:
    holder.train(GroupChanged("one died"), UPDATE, DONE, batches=range(1, 100))
    assert holder.batches == [2]


def test_an_update_is_discarded_with_its_batch_if_a_learner_is_lost(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch was sampled for that update, and its priorities may already be set."""
    found: list[Any] = []

    def update(batch: Any, reduce: Any) -> dict[str, float]:
        found.append(batch)
        if len(found) == 1:
            raise GroupChanged("one died")
        return {}

    monkeypatch.setattr(learner, "_update", update)
    learner.train(UPDATE, UPDATE, DONE, batches=range(1, 100))
    assert found[0] == 1
    assert learner.algorithm.updates == 0
    assert learner.run.models.version == 1


def test_repeated_changes_of_the_group_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(tmp_path, monkeypatch, 0)
    assert learner.run.report().warnings == ()

    monkeypatch.setattr(learner.run.group, "_failed_rounds", 3)
    monkeypatch.setattr(learner.run.group, "_reason", "connection refused")

    (warning,) = learner.run.report().warnings
    learner.run.close()
    assert warning.reason == "LearnersApart"
    assert warning.message == "the learners do not stay together: connection refused"


def test_all_learners_gather_a_checkpoint_and_then_the_first_one_saves_it(holder: Learner) -> None:
    saved = ["save"] if holder.record is not None else []
    assert holder.train(IDLE, SAVE, IDLE, DONE) == ["gather", *saved]


def test_a_checkpoint_has_the_state_before_the_update_of_its_round(first: Learner) -> None:
    both = SAVE._replace(update=True)
    assert first.train(both, DONE) == ["gather", "save", "update"]


def test_the_first_learner_requests_a_checkpoint_when_it_is_due(
    first: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first.record, "_next_checkpoint", 0.0)
    first.train(SAVE, IDLE, DONE)
    assert [request["checkpoint"] for request in first.group.requests] == [True, False, False]


def test_the_run_ends_after_its_last_checkpoint(first: Learner) -> None:
    """Otherwise the loss of a slice before the checkpoint would also lose the end of the run."""
    first.receive(100)
    assert first.train(IDLE, SAVE, DONE) == ["gather", "save"]
    assert first.group.requests[1:] == [
        {"done": False, "hold": True, "checkpoint": True},
        {"done": True, "hold": True, "checkpoint": False},
    ]
    assert first.record.stop_reason is not None


def test_steps_after_the_last_checkpoint_do_not_count(first: Learner) -> None:
    first.receive(100)
    assert first.steps == 0
    first.path.tick = lambda: first.receive(1)  # type: ignore[method-assign]
    first.train(IDLE, SAVE, DONE)
    assert first.steps == first.record._newest["progress"]["environment_steps"]


def test_the_loss_of_a_slice_during_the_last_checkpoint_rolls_all_back_and_the_run_continues(
    first: Learner,
) -> None:
    first.path.lose = True
    first.receive(100)
    first.train(IDLE, SAVE, IDLE, DONE)
    assert first.steps == 0
    assert first.record.stop_reason is None
    assert first.group.requests[2] == {"done": False, "hold": False, "checkpoint": False}
    assert first.done == ["leave", "form"]


def test_a_learner_that_should_end_requests_a_checkpoint_of_all_first(holder: Learner) -> None:
    holder.context.stopping.set()
    with pytest.raises(Stopped, match="after a checkpoint of all"):
        holder.train(SAVE)
    assert holder.group.requests[0]["checkpoint"]
    holder.run.save()
    assert holder.done == (["gather", "save"] if holder.record is not None else ["gather"])


def test_a_learner_that_should_end_while_another_is_lost_ends_without_a_checkpoint(holder: Learner) -> None:
    holder.context.stopping.set()
    with pytest.raises(Stopped):
        holder.train(GroupChanged("one died"))
    assert holder.done == []


def test_when_a_slice_is_lost_all_learners_roll_back_to_the_newest_checkpoint(first: Learner) -> None:
    first.receive(10)
    first.train(UPDATE, SAVE, DONE)
    kept = first.algorithm.parameters.clone()
    first.receive(20)
    first.path.applied = 5
    first.train(UPDATE, DONE)
    assert first.steps == 30
    assert not torch.equal(first.algorithm.parameters, kept)
    version = first.run.models.version
    before = first.done[:]

    first.run.count(7)  # from a lost update
    first.train(GroupChanged("one died"), DONE)
    assert first.steps == 10
    assert (first.algorithm.updates, first.path.applied) == (1, 0)
    assert first.done == [*before, "leave", "form"]
    assert first.run.models.version == version + 1, "no version is repeated"
    _, published = first.run.models.newer_than(0)
    assert published is not None
    assert torch.equal(published, kept)
    assert torch.equal(first.algorithm.parameters, kept)


def test_updates_after_a_rollback_are_published(first: Learner) -> None:
    first.train(UPDATE, SAVE, UPDATE, GroupChanged("one died"), UPDATE, DONE)
    _, published = first.run.models.newer_than(0)
    assert published is not None
    assert torch.equal(published, first.algorithm.parameters)
    assert published.tolist() == [2.0] * 3


def test_without_a_checkpoint_all_learners_roll_back_to_the_start(first: Learner) -> None:
    first.receive(20)
    first.path.applied = 5
    first.train(IDLE, DONE)
    first.train(GroupChanged("one died"), DONE)
    first.train(GroupChanged("and another"), DONE)
    assert first.steps == 0
    assert first.path.applied == 0


def test_learners_with_slices_evaluate_at_checkpoints_and_void_evaluations_on_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "COLLECT_SECONDS", 3600)
    first = Learner(tmp_path, monkeypatch, 0, slices=True, evaluation={"everySteps": 10})
    evaluator, tasks = first.record._evaluations._evaluator, []
    monkeypatch.setattr(evaluator, "start", lambda task: tasks.append(task.step))
    first.receive(9)
    first.train(IDLE, IDLE, DONE)
    first.receive(1)
    first.train(IDLE, SAVE, IDLE, DONE)
    assert [request["checkpoint"] for request in first.group.requests] == [False, True, False, False]
    assert (first.done, tasks) == (["gather", "save"], [10])
    first.receive(10)
    first.train(IDLE, IDLE, DONE)
    assert not any(request["checkpoint"] for request in first.group.requests), (
        "at most one per COLLECT_SECONDS"
    )
    first.train(GroupChanged("one died"), DONE)
    assert first.steps == 10
    assert first.record._evaluations.is_due(10), "its result did not come before the checkpoint"
    first.run.close()


def test_a_policy_that_is_not_finite_ends_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    def begin_run() -> tuple[Run, Algorithm]:
        begin = Begin(make_context(tmp_path))
        run, algorithm = (
            begin.make(SimpleNamespace(incarnation="a life", traffic=Traffic())),
            Algorithm(begin.policy()),
        )
        run.begin(None, {}, begin.spaces, algorithm)
        return run, algorithm

    # Write a checkpoint, after which a parameter overflows.
    run, algorithm = begin_run()
    algorithm.updates = 7
    run.save()
    with torch.no_grad():
        algorithm.network.value_head.bias.fill_(torch.inf)
    algorithm.updates = 8
    for state in (run.save, run.paths.get_common_state):
        with pytest.raises(Diverged) as caught:
            state()
        assert str(caught.value) == (
            "the policy's parameter value_head.bias is NaN or infinite at update 8: lower the learning rate, "
            "or clip gradients or rewards, and continue from the newest checkpoint"
        )
    run.close()

    again, resumed = begin_run()
    assert resumed.updates == 7
    again.close()


def test_a_loop_with_active_is_refused_if_each_learner_has_a_slice(holder: Learner) -> None:
    """Checkpoints contained the slice of learner 0, and the initial values of all others."""
    with pytest.raises(RuntimeError, match=r"^world\.gradients\(\) in mode Async .* use mode Sync"):
        holder.run.active()
