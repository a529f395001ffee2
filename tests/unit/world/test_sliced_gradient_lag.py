"""Policy lag with two learners that hold a slice each, in a simulation on their real services."""

from __future__ import annotations

import heapq
import itertools
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from gradient_simulation import make_learner, make_push
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.transport import DeferredReply
from rltraining_trainer.world.gradients import PATH

SAMPLERS = 100
COMPUTE_SECONDS = 3.0


class Simulation:
    """Samplers as in `SamplerGradients.push`. The first learner hands out the credits.

    Args:
        seconds: of an update, by learner.
        pause: seconds for which the second learner pauses once.
    """

    def __init__(self, seconds: tuple[float, float], pause: float = 0.0) -> None:
        self.now, self.pause, self.seconds = 0.0, pause, seconds
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        names = [f"sampler-{number}" for number in range(SAMPLERS)]
        self.models = [ModelServer(), ModelServer()]
        self.learners: list[Any] = []
        for index, models in enumerate(self.models):
            models.publish(torch.zeros(1))
            self.learners.append(make_learner(index, 2, names, models, lambda: self.now, maxPolicyLag=32))
        self.lags: tuple[list[int], list[int]] = ([], [])
        self._busy = [False, False]
        self._sequence = [0] * SAMPLERS
        for sampler in range(SAMPLERS):
            self._call(
                0, "pull", sampler, {"version": 0}, lambda answer, one=sampler: self._begin(one, answer)
            )
        for learner in (0, 1):
            self._tick(learner)

    def run(self, updates: int) -> None:
        while len(self.lags[0]) < updates:
            self.now, _, act = heapq.heappop(self._events)
            act()

    def _at(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), act))

    def _call(
        self, learner: int, service: str, sampler: int, message: Any, then: Callable[[Any], None]
    ) -> None:
        deferred = self.learners[learner].services[f"{PATH}/{service}"](f"sampler-{sampler}", message)
        assert isinstance(deferred, DeferredReply)
        deferred.attach(lambda result: then(result[1]))

    def _ask(self, sampler: int) -> None:
        """Asks for a credit, and then for the newest slice of the second learner."""
        self._call(0, "credit", sampler, {"version": 0}, partial(self._begin, sampler))

    def _begin(self, sampler: int, first: Any) -> None:
        if not first["credit"]:
            self._ask(sampler)
            return
        self._call(1, "pull", sampler, {"version": 0}, partial(self._compute, sampler, first))

    def _compute(self, sampler: int, *answers: Any) -> None:
        self._at(COMPUTE_SECONDS, partial(self._push, sampler, answers))

    def _push(self, sampler: int, answers: tuple[Any, ...]) -> None:
        """Sends both slices, and waits for both answers."""
        self._sequence[sampler] += 1
        received: dict[int, Any] = {}
        for learner, answer in enumerate(answers):
            message = make_push(self._sequence[sampler], answer)
            self._call(learner, "push", sampler, message, partial(self._answered, sampler, received, learner))
            self._learn(learner)

    def _answered(self, sampler: int, received: dict[int, Any], learner: int, answer: Any) -> None:
        received[learner] = answer
        if len(received) == 2 and received[0]["credit"]:
            self._compute(sampler, received[0], received[1])
        elif len(received) == 2:
            self._ask(sampler)

    def _tick(self, learner: int) -> None:
        if not self._busy[learner]:
            self.learners[learner].tick()
            self._learn(learner)
        self._at(1.0, lambda: self._tick(learner))

    def _learn(self, learner: int) -> None:
        if self._busy[learner] or not (pushes := self.learners[learner].take(timeout=0.0)):
            return
        self.lags[learner].extend(self.learners[learner].lag(push) for push in pushes)
        self._busy[learner] = True
        paused, self.pause = (
            (self.pause, 0.0) if learner == 1 and len(self.lags[1]) > 200 else (0.0, self.pause)
        )
        self._at(self.seconds[learner] + paused, lambda: self._publish(learner))

    def _publish(self, learner: int) -> None:
        self.models[learner].publish(torch.zeros(1))
        self._busy[learner] = False
        self.learners[learner].release()
        self._at(0.0, lambda: self._learn(learner))


@pytest.mark.parametrize(
    ("seconds", "pause"), [((1.0, 1.0), 0.0), ((1.0, 1.3), 0.0), ((1.3, 1.0), 0.0), ((1.0, 1.0), 60.0)]
)
def test_no_slice_is_much_older_than_the_others(seconds: tuple[float, float], pause: float) -> None:
    simulation = Simulation(seconds, pause)
    simulation.run(updates=600)

    for learner, lags in zip(simulation.learners, simulation.lags, strict=True):
        assert statistics.mean(lags[300:]) <= 16, "half of maxPolicyLag"
        assert learner.metrics()["gradients/stale"] == 0
