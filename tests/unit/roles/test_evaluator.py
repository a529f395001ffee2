"""The learner's side of an evaluator with a stand-in process: orders, retries, skips and the best policy."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rltraining_api.environment import Environment
from rltraining_api.evaluation import EvaluationResult
from rltraining_api.network import Network
from rltraining_api.status import Progress
from rltraining_trainer.evaluation import evaluator as module
from rltraining_trainer.evaluation.evaluator import TRIES, Evaluator, EvaluatorLost, Outcome, Task
from rltraining_trainer.evaluation.messages import Answer, Order
from rltraining_trainer.policy.description import DiscreteSpace, PolicyDescription

PLAYED = Answer(result=EvaluationResult(environment_steps=100, mean_return=7.0))
BEST = PLAYED.model_copy(update={"is_best": True})
LOST = EvaluatorLost("was ended by SIGKILL")


class Process:
    """Returns or raises the outcomes that the test has prepared."""

    answers: list[Answer | EvaluatorLost]
    orders: list[Order]
    made = 0

    def __init__(self) -> None:
        Process.made += 1

    def ask(self, order: Order, closing: threading.Event) -> Answer:
        self.orders.append(order)
        assert json.loads(Path(order.folder, "policy.json").read_bytes())["job"] == "pole"
        answer = self.answers.pop(0)
        Path(order.folder, "policy.ts").touch()
        if isinstance(answer, EvaluatorLost):
            raise answer
        return answer

    def kill(self) -> None: ...


def task(to_beat: float | None = None) -> Task:
    description = PolicyDescription(
        job="pole",
        algorithm="impala",
        environment=Environment(id="CartPole-v1"),
        network=Network.default(),
        observation_space=DiscreteSpace(n=2),
        action_space=DiscreteSpace(n=2),
        progress=Progress(environment_steps=100),
        time="2026-01-01T00:00:00Z",
        versions={},
    )
    return Task(description, {}, episodes=3, seed=5, num_envs=2, seconds=1.5, to_beat=to_beat)


@pytest.fixture
def evaluator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Evaluator]:
    monkeypatch.setattr(module, "_Process", Process)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 0.05)
    Process.answers, Process.orders, Process.made = [], [], 0
    made = Evaluator(tmp_path / "orders", str(tmp_path / "policy" / "best"))
    yield made
    made.close()
    assert not (tmp_path / "orders").exists()


def outcome_of(evaluator: Evaluator, carried_out: Task, *answers: Answer | EvaluatorLost) -> Outcome:
    Process.answers += answers
    evaluator.start(carried_out)
    assert not evaluator.idle
    until = time.monotonic() + 30
    while (outcome := evaluator.take()) is None:
        assert time.monotonic() < until
        time.sleep(0.001)
    assert evaluator.idle
    return outcome


def test_one_process_plays_policy_after_policy(evaluator: Evaluator, tmp_path: Path) -> None:
    for to_beat in (None, 3.0):
        outcome = outcome_of(evaluator, task(to_beat), PLAYED)
        assert (outcome.answer, outcome.error, outcome.best_policy_uri) == (PLAYED, None, None)
    assert Process.made == 1
    assert [order.to_beat for order in Process.orders] == [None, 3.0]
    assert not (tmp_path / "policy").exists()


def test_the_evaluation_of_a_process_that_is_lost_is_repeated_by_another(evaluator: Evaluator) -> None:
    outcome = outcome_of(evaluator, task(), LOST, PLAYED)
    assert outcome.answer == PLAYED
    assert (Process.made, evaluator.lost, evaluator.warning) == (2, 1, "")
    assert Process.orders[0] == Process.orders[1], "the same episodes"


def test_a_policy_over_which_processes_are_lost_again_and_again_is_passed_over(evaluator: Evaluator) -> None:
    assert outcome_of(evaluator, task(), *[LOST] * TRIES).answer is None
    assert evaluator.lost == TRIES
    assert evaluator.warning == (
        "the evaluator was ended by SIGKILL; the evaluation at step 100 is skipped after 3 attempts"
    )
    assert outcome_of(evaluator, task(), PLAYED).answer == PLAYED
    assert evaluator.warning == ""


def test_the_best_policy_is_kept_whole(evaluator: Evaluator, tmp_path: Path) -> None:
    folder = tmp_path / "policy" / "best"
    assert outcome_of(evaluator, task(), BEST).best_policy_uri == f"file://{folder}"
    assert sorted(path.name for path in folder.iterdir()) == ["policy.json", "policy.ts", "weights.pt"]


def test_a_best_policy_of_a_time_that_is_void_is_not_kept(evaluator: Evaluator, tmp_path: Path) -> None:
    void = task()
    void.void = True
    assert outcome_of(evaluator, void, BEST).best_policy_uri is None
    assert not (tmp_path / "policy").exists()


def test_a_best_policy_that_cannot_be_stored_is_reported(evaluator: Evaluator, tmp_path: Path) -> None:
    (tmp_path / "policy").write_text("a file")
    outcome = outcome_of(evaluator, task(), BEST)
    assert outcome.best_policy_uri is None
    assert outcome.not_kept.startswith(f"the policy could not be written to {tmp_path}/policy/best: ")
