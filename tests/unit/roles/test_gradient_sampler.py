"""The sampler's side of gradients: what it sends to whom, and that it never acts with slices of two places."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from rltraining_api.algorithms import A2c, Aggregate
from rltraining_trainer.algorithms.rollout_gradients import Gradient
from rltraining_trainer.dataflow import NO_MOMENTS
from rltraining_trainer.roles import gradient_sampler
from rltraining_trainer.roles.gradient_sampler import (
    Holders,
    RolloutStats,
    answer_timeout,
    send_at_once,
    send_in_step,
)

SIZE = 5


class Answer(NamedTuple):
    """Of a holder: ``life`` is what its parameters are filled with."""

    life: int
    iteration: int = 0
    position: int = 0
    used: bool = True
    done: bool = False


class FakeLink:
    """A holder that gives these answers, to whatever it is asked."""

    made: list[FakeLink]
    script: list[list[Answer]]

    def __init__(
        self, context: Any, url: str, endpoint: Any, service: str, parameters: torch.Tensor, **options: Any
    ) -> None:
        self.attached, self.version, self.done, self.alone = threading.Event(), 0, False, options["alone"]
        self.answer: dict[str, Any] = {}
        self.sent: list[dict[str, Any]] = []
        self.refreshed = 0
        self._parameters = parameters
        self._answers = iter(self.script[len(self.made)])
        self.made.append(self)

    def attach(self) -> None:
        self._next()
        self.attached.set()

    def refresh(self) -> None:
        self.refreshed += 1
        self._next()

    def send(self, **content: Any) -> None:
        if "gradient" in content:
            content["gradient"] = content["gradient"].clone()  # its memory is that of the next
        self.sent.append(content)

    def settle(self) -> None:
        self._next()

    def ask(self, service: str, payload: dict[str, Any]) -> Any:
        assert service == "sum"
        self.sent.append(payload)
        return torch.tensor([42.0]) if payload["place"][1] == 0 else None

    def _next(self) -> None:
        life, iteration, position, used, done = next(self._answers)
        self.version += 1
        self.done = done
        place = (f"life {life}", iteration, position)
        self.answer = {"place": place, "used": used, "exchanges": 1, "remaining": 1.0}
        self._parameters.fill_(life)


Script = list[list[Answer]]


def make_holders(
    monkeypatch: pytest.MonkeyPatch, script: Script
) -> tuple[Holders, torch.Tensor, list[FakeLink]]:
    """Attached ones that answer this, and the sampler's parameters."""
    monkeypatch.setattr(FakeLink, "made", [], raising=False)
    monkeypatch.setattr(FakeLink, "script", script, raising=False)
    monkeypatch.setattr(gradient_sampler, "LearnerLink", FakeLink)
    parameters = torch.zeros(SIZE)
    context: Any = SimpleNamespace(learners=["http://holder"] * len(script))
    endpoint: Any = SimpleNamespace(start=lambda: None)
    holders = Holders(context, endpoint, parameters)
    assert not holders.attached
    holders.attach()
    assert holders.attached
    return holders, parameters, FakeLink.made


def make_gradient() -> Gradient:
    return Gradient(torch.arange(float(SIZE)), 3.0, {"loss": 1.0})


def exchange(holders: Holders) -> bool:
    return holders.exchange(make_gradient(), RolloutStats(7, 3, torch.ones(2)))


def test_each_holder_gets_its_slice_of_one_place_and_the_first_the_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holders, _, links = make_holders(monkeypatch, [[Answer(1), Answer(1, 1)] for _ in range(3)])
    exchange(holders)
    messages = [link.sent[0] for link in links]
    assert torch.cat([message["gradient"] for message in messages]).tolist() == [0, 1, 2, 3, 4]
    assert [len(message["returns"]) for message in messages] == [2, 0, 0]
    assert {message["place"] for message in messages} == {("life 1", 0, 0)}
    assert {(message["steps"], message["weight"]) for message in messages} == {(7, 3.0)}
    assert [link.refreshed for link in links] == [0, 0, 0]
    assert holders.place == ("life 1", 1, 0)


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
def test_it_begins_with_slices_of_one_place(monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
    _, parameters, links = make_holders(monkeypatch, script)
    assert links[0].answer["place"] == links[1].answer["place"]
    assert parameters.tolist() == [2.0] * SIZE


def test_after_a_holder_was_lost_it_goes_on_when_all_slices_are_of_the_new_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first had used the gradient when the second was lost, and all went back."""
    script = [
        [Answer(1), Answer(1, 1), Answer(1, 1), Answer(2)],
        [Answer(1), Answer(2), Answer(2), Answer(2)],
    ]
    holders, parameters, _ = make_holders(monkeypatch, script)
    assert exchange(holders), "its steps are counted by the first"
    assert parameters.tolist() == [2.0] * SIZE
    assert holders.place == ("life 2", 0, 0)


@pytest.mark.parametrize("ended", [0, 1])
def test_when_one_holder_says_that_the_run_is_done_nobody_waits_for_the_others(
    monkeypatch: pytest.MonkeyPatch, ended: int
) -> None:
    script = [[Answer(1), Answer(1, 1)], [Answer(1), Answer(1, 1)]]
    script[ended][1] = Answer(3, done=True)
    holders, _, _ = make_holders(monkeypatch, script)
    assert not holders.done
    exchange(holders)
    assert holders.done


@pytest.mark.parametrize(("iteration", "total"), [(0, [42.0]), (1, [5.0])])
def test_the_sum_over_samplers_is_the_first_holders_or_else_the_own_part(
    monkeypatch: pytest.MonkeyPatch, iteration: int, total: list[float]
) -> None:
    holders, _, links = make_holders(monkeypatch, [[Answer(1, iteration)]] * 2)
    assert holders.add_up(torch.tensor([5.0])).tolist() == total
    assert links[0].sent[0]["place"] == ("life 1", iteration, 0)
    assert links[1].sent == []


def test_the_only_holder_is_begun_anew_when_it_is_lost_and_of_several_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for count in (1, 2):
        _, _, links = make_holders(monkeypatch, [[Answer(1)]] * count)
        assert [link.alone for link in links] == [count == 1] * count


def test_an_answer_may_come_as_late_as_the_deadline_of_an_update() -> None:
    for seconds, most in ((2.0, 62.0), (600.0, 660.0), (1e9, 2**31 / 1000)):
        timeout = answer_timeout(A2c(aggregate=Aggregate(deadline_seconds=seconds)))
        assert min(seconds, 3600) < timeout <= most


class Gradients:
    """Of a rollout of two valid steps, one of which ended an episode."""

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
    monkeypatch: pytest.MonkeyPatch, answers: Iterable[Answer], **options: Any
) -> tuple[Gradients, FakeLink]:
    holders, _, (link,) = make_holders(monkeypatch, [list(answers)])
    gradients = Gradients()
    (send_at_once if options.get("at_once") else send_in_step)(ROLLOUT, gradients, holders)
    return gradients, link


def counted(link: FakeLink) -> list[tuple[int, int]]:
    """(steps, returns) of each gradient."""
    return [(message["steps"], len(message["returns"])) for message in link.sent if "gradient" in message]


def test_a_sampler_in_step_sends_a_gradient_for_each_place_until_the_iteration_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [Answer(1), Answer(1, 0, 1), Answer(1, 0, 3), Answer(1, 1, 0)]
    gradients, link = send(monkeypatch, answers)
    assert gradients.positions == [0, 1, 3]
    assert gradients.shared == [42.0]
    assert [message["place"] for message in link.sent[1:]] == [
        ("life 1", 0, position) for position in (0, 1, 3)
    ]


def test_steps_are_counted_once_with_the_first_gradient_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Answer(1), Answer(1, 0, 1, used=False), Answer(1, 0, 2), Answer(1, 0, 3), Answer(1, 1, 0)]
    _, link = send(monkeypatch, answers)
    assert counted(link) == [(2, 1), (2, 1), (0, 0), (0, 0)]


@pytest.mark.parametrize(
    "last", [Answer(2), Answer(1, 0, 1, done=True)], ids=["a new life", "the run is done"]
)
def test_a_rollout_is_given_up_where_its_parameters_are_no_more(
    monkeypatch: pytest.MonkeyPatch, last: Answer
) -> None:
    gradients, _ = send(monkeypatch, [Answer(1), last])
    assert gradients.positions == [0]


def test_a_sampler_that_waits_for_nobody_sends_one_gradient_and_normalises_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gradients, link = send(monkeypatch, [Answer(1), Answer(1)], at_once=True)
    assert (gradients.positions, gradients.shared) == ([0], [5.0])
    assert counted(link) == [(2, 1)]


def test_a_rollout_is_sent_as_it_is_to_the_only_holder_with_the_place_it_was_made_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holders, parameters, (link,) = make_holders(monkeypatch, [[Answer(1, 4), Answer(2, 5)]])
    holders.send_rollout(ROLLOUT)
    assert link.sent == [{"place": ("life 1", 4, 0), "unroll": ROLLOUT}]
    assert (holders.place, parameters.tolist()) == (("life 2", 5, 0), [2.0] * SIZE)
