"""Scheduling of evaluations in the first learner, and processing of their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rltraining_api.evaluation import EvaluationResult
from rltraining_api.status import Progress
from rltraining_trainer.checkpoint import snapshot
from rltraining_trainer.environments import make_spaces
from rltraining_trainer.errors import BadConfiguration, Diverged, UserCodeError
from rltraining_trainer.evaluation.evaluator import Evaluator, Outcome, Task
from rltraining_trainer.evaluation.messages import Answer
from rltraining_trainer.metrics import EvaluationTracker
from rltraining_trainer.networks import build_actor_critic
from rltraining_trainer.policy import export_policy
from rltraining_trainer.roles import evaluations
from rltraining_trainer.roles.context import Context, read_job
from rltraining_trainer.roles.evaluations import Evaluations, _stored_best

EVERY = 100


class ByHand(Evaluator):
    """An evaluator. The test completes its tasks by hand."""

    def __init__(self, folder: Path, best_directory: str) -> None:
        self.best_directory = best_directory
        self.tasks: list[Task] = []
        self._outcome: Outcome | None = None
        self._current = None

    def start(self, task: Task) -> None:
        assert self.idle
        self._current = task
        self.tasks.append(task)

    def take(self) -> Outcome | None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            self._current = None
        return outcome

    def done(self, mean: float, *, kept: bool = True, **error: Any) -> None:
        task = self.tasks[-1]
        result = EvaluationResult(environment_steps=task.step, episodes=2, mean_return=mean)
        answer = Answer(**error) if error else Answer(result=result, is_best=kept)
        self._outcome = Outcome(task, answer, best_policy_uri=self.best_directory if kept else None)

    def passed_over(self) -> None:
        self._outcome = Outcome(self.tasks[-1])

    def close(self) -> None: ...


class World:
    """A learner's evaluations, without the learner."""

    def __init__(self, tmp_path: Path, **evaluation: Any) -> None:
        spec = {
            "algorithm": {"impala": {}},
            "environment": {"id": "CartPole-v1", "numEnvs": 4},
            "evaluation": {"everySteps": EVERY, "episodes": 2} | evaluation,
            "stop": {"environmentSteps": 10**9},
        }
        file = tmp_path / "job.json"
        file.write_text(json.dumps({"metadata": {"name": "pole"}, "spec": spec}))
        self.job = read_job(file)
        self.context = Context(self.job, file, "token", "pole-learner-0", 0, 0, ("http://x",), (), tmp_path)
        self.spaces = make_spaces(self.job.spec.environment)
        self.network, _ = build_actor_critic(self.job.spec.network, *self.spaces)
        self.tracker = EvaluationTracker(self.job.spec.stop)
        self.begin(resumed=False)

    def begin(self, *, resumed: bool) -> None:
        made: list[ByHand] = []

        def make(folder: Path, best: str) -> ByHand:
            made.append(ByHand(folder, best))
            return made[-1]

        parts = (self.context, self.spaces, self.network, self.tracker)
        self.evaluations = Evaluations(*parts, resumed=resumed, make_evaluator=make)
        (self.evaluator,) = made

    def at(self, steps: int) -> list[int]:
        """Runs the learner's loop once. Returns the steps of all policies evaluated so far."""
        self.evaluations.take()
        if self.evaluations.is_due(steps):
            self.evaluations.start(Progress(environment_steps=steps), seconds=steps / 10)
        return [task.step for task in self.evaluator.tasks]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_evaluations_are_due_at_multiples_and_merged_while_one_is_running(world: World) -> None:
    assert world.at(99) == []
    assert world.at(105) == [105]
    assert world.at(450) == [105], "the evaluator is busy"
    world.evaluator.done(7.0)
    assert world.at(455) == [105, 455], "one evaluation for 200, 300 and 400"
    assert (world.tracker.status.count, world.tracker.status.merged) == (1, 2)
    world.evaluator.done(8.0)
    assert world.at(499) == [105, 455]
    assert world.at(500) == [105, 455, 500]


def test_the_policy_taken_is_that_of_the_moment_and_is_to_beat_the_best(world: World) -> None:
    world.at(100)
    before = world.evaluator.tasks[0].weights["policy_head.weight"].clone()
    with torch.no_grad():
        for parameter in world.network.parameters():
            parameter.add_(1.0)
    world.evaluator.done(7.0)
    world.at(200)
    first, second = world.evaluator.tasks
    assert torch.equal(first.weights["policy_head.weight"], before)
    assert torch.equal(second.weights["policy_head.weight"], before + 1)
    assert (first.to_beat, second.to_beat) == (None, 7.0)
    assert (first.num_envs, first.episodes, first.seconds) == (2, 2, 10.0)
    assert first.seed != second.seed, "other episodes"


def test_not_more_environments_are_played_at_once_than_a_sampler_has(tmp_path: Path) -> None:
    world = World(tmp_path, episodes=50)
    world.at(100)
    assert world.evaluator.tasks[0].num_envs == 4


def test_a_learner_that_restarts_evaluates_again_what_it_had_not_finished(world: World) -> None:
    world.at(100)
    world.evaluator.done(7.0)
    world.at(200)
    seed = world.evaluator.tasks[-1].seed
    checkpoint = snapshot(world.tracker.get_state())
    world.tracker = EvaluationTracker(world.job.spec.stop)
    world.tracker.set_state(checkpoint)
    world.begin(resumed=True)
    assert world.at(200) == [200]
    assert world.evaluator.tasks[-1].seed == seed, "the same episodes"
    assert world.tracker.status.count == 1


def test_what_a_learner_that_goes_back_was_evaluating_is_void(world: World) -> None:
    world.at(100)
    world.evaluator.done(7.0)
    world.at(150)
    checkpoint = snapshot(world.tracker.get_state())
    world.at(230)
    world.tracker.set_state(checkpoint)
    world.evaluations.rollback()
    assert world.evaluator.tasks[-1].void
    world.evaluator.done(9.0)
    assert world.at(199) == [100, 230]
    assert world.tracker.status.count == 1
    assert world.at(201) == [100, 230, 201]


def test_a_policy_that_is_passed_over_is_counted_and_the_next_one_taken(world: World) -> None:
    world.at(100)
    world.evaluator.lost = 3
    world.evaluator.passed_over()
    assert world.at(199) == [100]
    status = world.tracker.status
    assert (status.count, status.merged, status.restarts, status.last) == (0, 1, 3, None)
    assert world.at(200) == [100, 200]


@pytest.mark.parametrize(
    ("name", "kind"), [("UserCodeError", UserCodeError), ("BadConfiguration", BadConfiguration)]
)
def test_errors_of_user_code_end_the_job_with_their_traceback(world: World, name: str, kind: type) -> None:
    world.at(100)
    world.evaluator.done(0.0, error=name, message="environment 'A': step raised KeyError\nTraceback")
    with pytest.raises(kind) as caught:
        world.at(101)
    assert str(caught.value) == "evaluation at step 100: environment 'A': step raised KeyError\nTraceback"


def test_a_policy_that_is_not_finite_ends_the_job(world: World) -> None:
    with torch.no_grad():
        next(world.network.parameters()).fill_(float("nan"))
    with pytest.raises(Diverged, match="at step 100"):
        world.at(100)


def test_an_algorithm_without_a_policy_cannot_be_evaluated(world: World) -> None:
    with pytest.raises(BadConfiguration, match=r"spec\.evaluation needs a policy"):
        Evaluations(world.context, world.spaces, None, world.tracker, resumed=False)


def test_the_last_policy_is_evaluated_too(world: World) -> None:
    world.at(100)
    world.evaluator.done(7.0)
    ended = world.evaluations.finish(Progress(environment_steps=130), 13.0, lambda: False)
    assert next(ended)["evaluation/environmentSteps"] == 100
    world.evaluations.start(Progress(environment_steps=130), 13.0)
    world.evaluator.done(9.0)
    assert next(ended)["evaluation/best"] == 9.0
    assert list(ended) == []
    assert world.tracker.status.count == 2


def test_the_wait_for_the_last_evaluation_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluations, "PENDING_SECONDS", 0.0)
    looks = iter((False, True))
    assert list(world.evaluations.finish(Progress(environment_steps=130), 13.0, lambda: next(looks))) == []
    (warning,) = world.evaluations.warnings()
    assert (warning.reason, warning.message) == (
        "LastEvaluationPending",
        "training is complete; the run waits for the evaluation of the last policy, at most 60 s",
    )
    world.evaluator.done(9.0)
    assert len(list(world.evaluations.finish(Progress(environment_steps=130), 13.0, lambda: False))) == 1
    assert list(world.evaluations.warnings()) == [], "it was evaluated"


@pytest.mark.parametrize(
    ("episodes", "training"), [(0, ", and no episode of the training has ended"), (7, "")]
)
def test_a_last_policy_that_is_not_evaluated_is_reported_with_the_remedy(
    world: World, monkeypatch: pytest.MonkeyPatch, episodes: int, training: str
) -> None:
    monkeypatch.setattr(evaluations, "LAST_EVALUATION_SECONDS", 0.0)
    last = Progress(environment_steps=130, episodes=episodes)
    assert list(world.evaluations.finish(last, 13.0, lambda: False)) == []
    (warning,) = world.evaluations.warnings()
    assert (warning.reason, warning.message) == (
        "LastPolicyNotEvaluated",
        f"the last policy was not evaluated: its episodes did not end within 0 s{training}; episodes "
        "without an end need environment.maxEpisodeSteps; fewer evaluation.episodes take less time",
    )


def test_the_best_is_found_again_where_it_is_kept(world: World, tmp_path: Path) -> None:
    uri = f"{tmp_path}/policy/best"
    assert _stored_best(uri) == (None, None)
    export_policy(uri, world.network, world.job, world.spaces, Progress(environment_steps=100))
    file = Path(uri, "policy.json")
    best = {"environmentSteps": 100, "meanReturn": 9.0}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"evaluation": best}))
    world.begin(resumed=True)
    assert world.tracker.status.best == EvaluationResult(environment_steps=100, mean_return=9.0)
    assert world.tracker.status.best_policy_uri == f"file://{uri}"
    file.write_text("{")
    world.begin(resumed=True)
    assert world.tracker.status.best is None
