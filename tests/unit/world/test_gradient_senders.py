"""The sampler's side of gradients: which gradients it sends to which learner.

A sampler's slices never mix two groups of learners.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from rltraining_api.algorithms import Aggregate
from rltraining_trainer.algorithms.rollouts import send_at_once, send_in_step
from rltraining_trainer.dataflow import NO_MOMENTS
from rltraining_trainer.transport import Stopped
from rltraining_trainer.world import Gradient, RolloutStats, SamplerGradients
from rltraining_trainer.world import gradients as module
from rltraining_trainer.world.gradients import answer_timeout
from rltraining_trainer.world.session import Connections

SIZE = 5


class Answer(NamedTuple):
    """A learner's answer. The learner's parameters are filled with ``life``."""

    life: int
    iteration: int = 0
    position: int = 0
    used: bool = True
    done: bool = False
    credit: bool = True


class FakeSession:
    """A learner that answers all calls with these answers."""

    made: list[FakeSession]
    script: list[list[Answer]]

    def __init__(
        self, context: Any, url: str, endpoint: Any, path: str, parameters: torch.Tensor, **options: Any
    ) -> None:
        assert path == "gradients"
        self.url, self.options = url, options
        self.attached, self.version, self.done = False, 0, False
        self.answer: dict[str, Any] = {}
        self.sent: list[dict[str, Any]] = []
        self.refreshed = 0
        self.requested: list[str] = []
        self._parameters = parameters
        self._answers = iter(self.script[len(self.made)])
        self.made.append(self)

    def attach(self) -> None:
        self._next()
        self.attached = True

    def refresh(self) -> None:
        self.refreshed += 1
        self._next()

    def send(self, **content: Any) -> None:
        if "gradient" in content:
            content["gradient"] = content["gradient"].clone()  # its memory is reused for the next gradient
        self.sent.append(content)

    def settle(self) -> None:
        self._next()

    def request(self, service: str) -> None:
        self.requested.append(service)
        self._next()

    def ask(self, service: str, payload: dict[str, Any]) -> Any:
        assert service == "gradients/sum"
        self.sent.append(payload)
        return torch.tensor([42.0]) if payload["place"][1] == 0 else None

    def _next(self) -> None:
        life, iteration, position, used, done, credit = next(self._answers)
        self.version += 1
        self.done = done
        place = (f"life {life}", iteration, position)
        self.answer = {"place": place, "used": used, "credit": credit, "exchanges": 1, "remaining": 1.0}
        self._parameters.fill_(life)


Script = list[list[Answer]]


def make_path(
    monkeypatch: pytest.MonkeyPatch,
    script: Script,
    index: int = 0,
    mode: Any = None,
    learners: int = 0,
    max_lag: int | None = None,
) -> tuple[SamplerGradients, torch.Tensor, list[FakeSession]]:
    """Returns an attached path to learners with these answers, the sampler's parameters, and the sessions."""
    monkeypatch.setattr(FakeSession, "made", [], raising=False)
    monkeypatch.setattr(FakeSession, "script", script, raising=False)
    monkeypatch.setattr(module, "LearnerSession", FakeSession)
    parameters, count = torch.zeros(SIZE), learners or len(script)
    urls = tuple(f"http://learner-{number}" for number in range(count))
    context: Any = SimpleNamespace(learners=urls, index=index, stopping=threading.Event())
    connections = Connections(context, SimpleNamespace())  # type: ignore[arg-type]
    make = connections.learner
    monkeypatch.setattr(connections, "learner", lambda *args, **more: make(*args, **more, kind=FakeSession))  # type: ignore[arg-type]
    aggregate = Aggregate(mode=mode or ("Async" if count > 1 else "Sync"), max_policy_lag=max_lag)
    path = SamplerGradients(connections, aggregate, updates_at_learner=False)
    path.attach(parameters)
    assert connections.attached
    return path, parameters, FakeSession.made


def make_gradient() -> Gradient:
    return Gradient(torch.arange(float(SIZE)), 3.0, {"loss": 1.0})


def push(path: SamplerGradients) -> bool:
    return path.push(make_gradient(), RolloutStats(7, 3, torch.ones(2)))


def test_each_learner_receives_its_slice_and_the_first_one_the_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, _, sessions = make_path(monkeypatch, [[Answer(1), Answer(1, 1)] for _ in range(3)])
    push(path)
    messages = [session.sent[0] for session in sessions]
    assert torch.cat([message["gradient"] for message in messages]).tolist() == [0, 1, 2, 3, 4]
    assert [len(message["returns"]) for message in messages] == [2, 0, 0]
    assert {message["place"] for message in messages} == {("life 1", 0, 0)}
    assert {(message["steps"], message["weight"]) for message in messages} == {(7, 3.0)}
    assert [session.refreshed for session in sessions] == [0, 0, 0]
    assert path.place == ("life 1", 1, 0)


@pytest.mark.parametrize(
    "script",
    [
        [[Answer(1), Answer(2)], [Answer(2), Answer(2)]],
        [[Answer(2), Answer(2)], [Answer(1), Answer(2)]],
        [[Answer(1), Answer(1), Answer(2)], [Answer(2), Answer(2), Answer(2)]],
        [[Answer(2), Answer(2, 1)], [Answer(2, 1), Answer(2, 1)]],
        [[Answer(2), Answer(2, 0, 1)], [Answer(2, 0, 1), Answer(2, 0, 1)]],
    ],
)
def test_a_sampler_starts_with_slices_of_one_place(monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
    _, parameters, sessions = make_path(monkeypatch, script)
    assert sessions[0].answer["place"] == sessions[1].answer["place"]
    assert parameters.tolist() == [2.0] * SIZE


def test_after_the_loss_of_a_learner_a_sampler_waits_for_slices_of_the_new_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first learner had used the gradient when the second was lost, and all rolled back."""
    script = [
        [Answer(1), Answer(1, 1), Answer(1, 1), Answer(2)],
        [Answer(1), Answer(2), Answer(2), Answer(2)],
    ]
    path, parameters, _ = make_path(monkeypatch, script)
    assert push(path), "its steps are counted by the first"
    assert parameters.tolist() == [2.0] * SIZE
    assert path.place == ("life 2", 0, 0)


def test_a_sampler_asks_again_until_it_has_a_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [[Answer(1, credit=False), Answer(1), Answer(1, 1, credit=False), Answer(1, 1, used=False)]]
    path, _, (session,) = make_path(monkeypatch, script, mode="Async", max_lag=32)
    assert session.requested == ["gradients/credit"]

    assert push(path), "an answer to a request says nothing of the gradient"
    assert session.requested == ["gradients/credit"] * 2
    assert session.refreshed == 0


def test_after_a_wait_for_a_credit_a_sampler_gets_the_newest_slices_of_the_other_learners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = [[Answer(1), Answer(1, credit=False), Answer(1), Answer(1)], [Answer(1)] * 4]
    path, _, (first, second) = make_path(monkeypatch, script, max_lag=32)
    assert first.requested == second.requested == []
    assert push(path)
    assert first.requested == ["gradients/credit"]
    assert second.requested == ["gradients/pull"]
    push(path)
    assert len(first.requested) == 1, "no other sampler waits for its credit"


def test_after_a_rollback_a_sampler_asks_for_a_credit_again(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [
        [Answer(1), Answer(1, credit=False), Answer(1), Answer(2, credit=False), Answer(2)],
        [Answer(1), Answer(1), Answer(2), Answer(2), Answer(2)],
    ]
    path, parameters, (first, _) = make_path(monkeypatch, script, max_lag=32)
    assert push(path)
    assert first.requested == ["gradients/credit"] * 2
    assert parameters.tolist() == [2.0] * SIZE


def test_the_end_of_the_run_ends_a_sampler_that_waits_for_a_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    path, _, _ = make_path(
        monkeypatch, [[Answer(1), Answer(1, 1, credit=False), Answer(1, done=True, credit=False)]]
    )
    with pytest.raises(Stopped, match="the run is done"):
        push(path)


@pytest.mark.parametrize("ended", [0, 1])
def test_the_end_of_the_run_at_one_learner_ends_the_sampler_without_waiting_for_the_others(
    monkeypatch: pytest.MonkeyPatch, ended: int
) -> None:
    script = [[Answer(1), Answer(1, 1)], [Answer(1), Answer(1, 1)]]
    script[ended][1] = Answer(3, done=True)
    path, _, _ = make_path(monkeypatch, script)
    with pytest.raises(Stopped, match="the run is done"):
        push(path)


@pytest.mark.parametrize(("iteration", "total"), [(0, [42.0]), (1, [5.0])])
def test_the_sum_over_samplers_is_that_of_the_learner_or_else_the_own_part(
    monkeypatch: pytest.MonkeyPatch, iteration: int, total: list[float]
) -> None:
    path, _, sessions = make_path(monkeypatch, [[Answer(1, iteration)]] * 2)
    assert path.add_up(torch.tensor([5.0])).tolist() == total
    assert sessions[0].sent[0]["place"] == ("life 1", iteration, 0)
    assert sessions[1].sent == []


def test_only_a_session_that_is_alone_may_restart_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (1, 2):
        path, _, _ = make_path(monkeypatch, [[Answer(1)]] * count)
        assert path.alone == (count == 1)


@pytest.mark.parametrize("index", range(5))
def test_a_sampler_of_two_synchronous_learners_has_one_of_them(
    monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    path, _, sessions = make_path(monkeypatch, [[Answer(1), Answer(1, 1)]], index, "Sync", learners=2)
    push(path)
    assert [session.url for session in sessions] == [f"http://learner-{index % 2}"]
    assert sessions[0].sent[0]["gradient"].tolist() == [0, 1, 2, 3, 4]
    assert path.alone


def test_an_answer_may_be_as_late_as_the_deadline_of_an_update() -> None:
    for seconds, most in ((2.0, 62.0), (600.0, 660.0), (1e9, 2**31 / 1000)):
        timeout = answer_timeout(Aggregate(deadline_seconds=seconds))
        assert min(seconds, 3600) < timeout <= most


class Gradients:
    """Gradients of a rollout of two valid steps, one of which ended an episode."""

    exchanges = 4

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.shared: list[float] = []

    def begin(self, unroll: Any, remaining: float = 1.0, exchanges: int | None = None) -> torch.Tensor:
        return torch.tensor([5.0])

    def share(self, totals: torch.Tensor) -> None:
        self.shared += totals.tolist()

    def gradient(self, position: int) -> Gradient:
        self.positions.append(position)
        return make_gradient()


ROLLOUT: Any = {
    "valid": torch.tensor([True, False, True]),
    "episodes": torch.tensor([2]),
    "episode_return": torch.ones(1),
    "moments": NO_MOMENTS,
}


def send(
    monkeypatch: pytest.MonkeyPatch, answers: Iterable[Answer], *, at_once: bool = False
) -> tuple[Gradients, FakeSession]:
    path, _, (session,) = make_path(monkeypatch, [list(answers)])
    gradients: Any = Gradients()
    with suppress(Stopped):
        (send_at_once if at_once else send_in_step)(ROLLOUT, gradients, path)
    return gradients, session


def counted(session: FakeSession) -> list[tuple[int, int]]:
    """Returns (steps, returns) of each gradient."""
    return [(message["steps"], len(message["returns"])) for message in session.sent if "gradient" in message]


def test_a_synchronous_sampler_sends_a_gradient_for_each_place_of_its_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [Answer(1), Answer(1, 0, 1), Answer(1, 0, 3), Answer(1, 1, 0)]
    gradients, session = send(monkeypatch, answers)
    assert gradients.positions == [0, 1, 3]
    assert gradients.shared == [42.0]
    assert [message["place"] for message in session.sent[1:]] == [
        ("life 1", 0, position) for position in (0, 1, 3)
    ]


def test_steps_are_counted_once_with_the_first_gradient_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Answer(1), Answer(1, 0, 1, used=False), Answer(1, 0, 2), Answer(1, 0, 3), Answer(1, 1, 0)]
    _, session = send(monkeypatch, answers)
    assert counted(session) == [(2, 1), (2, 1), (0, 0), (0, 0)]


@pytest.mark.parametrize(
    "last", [Answer(2), Answer(1, 0, 1, done=True)], ids=["a new life", "the run is done"]
)
def test_a_rollout_is_abandoned_if_its_parameters_are_gone(
    monkeypatch: pytest.MonkeyPatch, last: Answer
) -> None:
    gradients, _ = send(monkeypatch, [Answer(1), last])
    assert gradients.positions == [0]


def test_an_asynchronous_sampler_sends_one_gradient_and_normalises_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gradients, session = send(monkeypatch, [Answer(1), Answer(1)], at_once=True)
    assert (gradients.positions, gradients.shared) == ([0], [5.0])
    assert counted(session) == [(2, 1)]


def test_a_rollout_is_sent_unchanged_with_the_place_of_its_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, parameters, (session,) = make_path(monkeypatch, [[Answer(1, 4), Answer(2, 5)]])
    path.push_rollout(ROLLOUT)
    assert session.sent == [{"place": ("life 1", 4, 0), "unroll": ROLLOUT}]
    assert (path.place, parameters.tolist()) == (("life 2", 5, 0), [2.0] * SIZE)
