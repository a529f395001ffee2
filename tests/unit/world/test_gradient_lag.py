"""Policy lag of asynchronous gradients for any number of samplers, in a simulation on the learner's real services."""

from __future__ import annotations

import heapq
from typing import Any

import pytest
import torch
from gradient_simulation import make_learner, make_push
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.transport import DeferredReply
from rltraining_trainer.world.gradients import PATH

POLL_SECONDS = 1.0


class Simulation:
    """Samplers that need some time per gradient, and a learner that needs 1 per update."""

    def __init__(self, speeds: list[float], *, index: int = 0, learners: int = 1, **aggregate: Any) -> None:
        self.models = ModelServer()
        self.models.publish(torch.zeros(1))
        self.now = 0.0
        names = [f"sampler-{sampler}" for sampler in range(len(speeds))]
        self.gradients = make_learner(index, learners, names, self.models, lambda: self.now, **aggregate)
        self.speeds = speeds
        self.lags: list[int] = []
        self.turns = [0] * len(speeds)
        self.lost: set[int] = set()
        """Dead samplers."""
        self._events: list[tuple[float, int, dict[str, Any]]] = []  # when a sampler has a gradient
        for sampler in range(len(speeds)):
            self._call("pull", sampler, {"version": 0})

    def run(self, updates: int) -> None:
        """Runs until the learner has made this number of updates."""
        for _ in range(updates):
            while not (pushes := self.gradients.take(timeout=0.0)):
                self._wait()
            self.lags += [self.gradients.lag(push) for push in pushes]
            free = self.now + 1.0
            while self._events and self._events[0][0] <= free:
                self._next()
            self.now = free
            self.models.publish(torch.zeros(1))
            self.gradients.release()

    def _wait(self) -> None:
        """The learner polls until a sampler has a gradient."""
        if self._events and self._events[0][0] - self.now <= POLL_SECONDS:
            self._next()
        else:
            self.now += POLL_SECONDS
            self.gradients.tick()

    def _next(self) -> None:
        """A sampler has computed a gradient."""
        self.now, sampler, answer = heapq.heappop(self._events)
        if sampler in self.lost:
            return
        self.turns[sampler] += 1
        self._call("push", sampler, make_push(self.turns[sampler], answer))

    def _call(self, service: str, sampler: int, payload: dict[str, Any]) -> None:
        def answered(result: tuple[str, Any]) -> None:
            answer = result[1]
            if sampler in self.lost:
                return
            if answer["credit"]:
                heapq.heappush(self._events, (self.now + self.speeds[sampler], sampler, answer))
            else:
                self._call("credit", sampler, {"version": 0})

        deferred = self.gradients.services[f"{PATH}/{service}"](f"sampler-{sampler}", payload)
        assert isinstance(deferred, DeferredReply)
        deferred.attach(answered)


@pytest.mark.parametrize("samplers", [2, 10, 100, 1000])
def test_lag_does_not_grow_with_the_number_of_samplers(samplers: int) -> None:
    simulation = Simulation([3.0] * samplers, maxPolicyLag=16)
    simulation.run(updates=300)

    assert max(simulation.lags) <= 3, "4 gradients keep the learner busy"
    assert simulation.gradients.metrics()["gradients/dropped"] == 0


def test_slow_samplers_get_as_many_credits_as_keep_the_learner_busy() -> None:
    simulation = Simulation([30.0] * 100, maxPolicyLag=128)
    simulation.run(updates=2000)
    begin = simulation.now
    simulation.run(updates=500)

    assert simulation.now - begin < 1.2 * 500, "the learner needs 1 for an update"
    assert sorted(simulation.lags[2000:])[250] <= 50, "30 are needed, and more are tried now and then"


def test_the_largest_policy_lag_limits_the_gradients_under_way() -> None:
    simulation = Simulation([30.0] * 100, maxPolicyLag=8)
    simulation.run(updates=500)

    assert max(simulation.lags) <= 4


def test_every_sampler_has_its_turn() -> None:
    simulation = Simulation([3.0] * 50, maxPolicyLag=8)
    simulation.run(updates=500)

    assert min(simulation.turns) >= 9
    assert max(simulation.turns) <= 11


def test_lost_samplers_keep_the_others_waiting_for_seconds_only() -> None:
    simulation = Simulation([2.0] * 100, maxPolicyLag=8)
    simulation.run(updates=50)
    simulation.lost = set(range(90))
    begin = simulation.now
    simulation.run(updates=60)

    assert simulation.now - begin < 60 + 150, "90 samplers lose their credits, 4 at a time"


def test_an_update_of_one_gradient_of_each_sampler_gets_them_all() -> None:
    simulation = Simulation([3.0] * 20, maxPolicyLag=0, count=None, deadlineSeconds=1000)
    simulation.run(updates=50)

    assert simulation.turns == [50] * 20
    assert set(simulation.lags) == {0}


def test_of_several_learners_only_the_first_hands_out_credits() -> None:
    simulation = Simulation([3.0] * 10, index=1, learners=2, maxPolicyLag=100)
    assert len(simulation._events) == 10
    simulation = Simulation([3.0] * 10, index=0, learners=2, maxPolicyLag=100)
    assert len(simulation._events) == 4


def test_a_sampler_with_gradients_that_are_always_too_old_is_named() -> None:
    simulation = Simulation([1.0] * 4 + [60.0] * 2, maxPolicyLag=32)
    simulation.run(updates=100)
    assert simulation.gradients.warnings() == (), "a few old gradients are no reason to worry"
    simulation.run(updates=900)

    (warning,) = simulation.gradients.warnings()
    assert warning.reason == "DataTooOld"
    assert warning.message.startswith(
        "sampler-4 (and 1 more) contributes nothing: the parameters of its last 10 gradients"
    )

    # The samplers become faster.
    simulation.speeds[4:] = [1.0, 1.0]
    simulation.run(updates=100)
    assert simulation.gradients.warnings() == ()
