"""Policy lag for any number of samplers, in a simulation on the learner's real services."""

from __future__ import annotations

import heapq
import random
import threading
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.transport import DeferredReply
from rltraining_trainer.world.trajectories import PATH, LearnerTrajectories
from soak import SOAK

POLL_SECONDS = 1.0


class Simulation:
    """Samplers that need some time per item, and a learner that needs 1 per update."""

    def __init__(
        self,
        speeds: list[float],
        *,
        max_lag: int | None,
        count: int = 1,
        capacity: int = 1,
        cores: int = 9999,
    ) -> None:
        """``cores``: if more samplers collect at the same time, each takes longer."""
        self.models = ModelServer()
        self.models.publish(torch.zeros(1))
        self.now = 0.0
        clock = lambda: self.now  # noqa: E731
        self.queue = LearnerTrajectories(
            capacity, self.models, threading.Event(), max_lag=max_lag, clock=clock
        )
        self.count, self.speeds, self.cores = count, speeds, cores
        self.lags: list[int] = []
        self._events: list[tuple[float, int, int]] = []  # time at which a sampler has an item of a version
        self._version = [0] * len(speeds)
        self._sequence = [0] * len(speeds)
        self._held = dict[int, int]()  # versions of items that wait for the answer to the previous item
        self._ahead = [False] * len(speeds)
        self._pending = [False] * len(speeds)
        self.lost: set[int] = set()
        """Dead samplers."""
        for sampler in range(len(speeds)):
            self._call("credit", sampler, {"version": 0})

    def run(self, updates: int) -> None:
        """Runs until the learner has made this number of updates."""
        free = 0.0  # time at which the learner is ready for a batch
        for _ in range(updates):
            while not self.queue.get(self.count, timeout=0.0):
                self._wait()
                self._next()
            self.lags += self.queue.lags
            free = max(free, self.now) + 1.0
            while self._events and self._events[0][0] <= free:
                self._next()
            self.now = free
            self.models.publish(torch.zeros(1))

    def _wait(self) -> None:
        """The learner polls until a sampler has an item."""
        while not self._events or self._events[0][0] - self.now > POLL_SECONDS:
            self.now += POLL_SECONDS
            assert not self.queue.get(self.count, timeout=0.0)

    def _next(self) -> None:
        """A sampler has collected its next item."""
        self.now, sampler, version = heapq.heappop(self._events)
        if sampler in self.lost:
            return
        if self._pending[sampler]:
            self._held[sampler] = version
        else:
            self._push(sampler, version)

    def _push(self, sampler: int, version: int) -> None:
        self._sequence[sampler] += 1
        self._pending[sampler] = True
        ahead = self._ahead[sampler]
        if ahead:
            self._collect(sampler)
        push = {"incarnation": "a", "sequence": self._sequence[sampler], "version": version, "item": {}}
        self._call("push", sampler, push, collect=not ahead)

    def _call(self, service: str, sampler: int, payload: dict[str, Any], collect: bool = True) -> None:
        def answered(answer: tuple[str, Any]) -> None:
            if sampler in self.lost:
                return
            if not answer[1]["credit"]:
                self._call("credit", sampler, {"version": 0}, collect)
                return
            self._version[sampler], self._ahead[sampler] = answer[1]["version"], answer[1]["ahead"]
            self._pending[sampler] = False
            if sampler in self._held:
                self._push(sampler, self._held.pop(sampler))
            elif collect:
                self._collect(sampler)

        answer = self.queue.services[f"{PATH}/{service}"](f"sampler-{sampler}", payload)
        assert isinstance(answer, DeferredReply)
        answer.attach(answered)

    def _collect(self, sampler: int) -> None:
        slower = max(1.0, (len(self._events) + 1) / self.cores)
        heapq.heappush(
            self._events, (self.now + slower * self.speeds[sampler], sampler, self._version[sampler])
        )


@pytest.mark.parametrize("capacity", [0, 1])
@pytest.mark.parametrize("samplers", [2, 10, 100, 1000])
def test_lag_does_not_grow_with_the_number_of_samplers(samplers: int, capacity: int) -> None:
    simulation = Simulation([5.0] * samplers, max_lag=8, capacity=capacity)
    simulation.run(updates=300)

    assert max(simulation.lags) <= 5
    assert simulation.queue.counts().dropped == 0


def test_slow_samplers_get_as_many_credits_as_keep_the_learner_busy() -> None:
    simulation = Simulation([30.0] * 100, max_lag=128)
    simulation.run(updates=2000)
    begin = simulation.now
    simulation.run(updates=500)

    assert simulation.now - begin < 1.2 * 500, "the learner needs 1 for an update"
    assert sorted(simulation.lags[2000:])[250] <= 50, "30 are needed, and more are tried now and then"


def test_samplers_that_share_cores_get_no_more_credits_than_make_them_faster() -> None:
    simulation = Simulation([30.0] * 100, max_lag=128, cores=2)
    simulation.run(updates=2000)

    late = sorted(simulation.lags[500:])
    assert late[int(0.8 * len(late))] <= 4
    assert max(late) <= 8, "twice as many are tried now and then"


def test_without_a_bound_lag_grows_with_the_number_of_samplers() -> None:
    simulation = Simulation([5.0] * 100, max_lag=None)
    simulation.run(updates=600)

    assert max(simulation.lags[300:]) > 100


def test_every_sampler_has_its_turn() -> None:
    simulation = Simulation([3.0] * 50, max_lag=8)
    simulation.run(updates=500)

    assert min(simulation._sequence) >= 9
    assert max(simulation._sequence) <= 11


def test_lost_samplers_keep_the_others_waiting_for_seconds_only() -> None:
    simulation = Simulation([2.0] * 1000, max_lag=8)
    simulation.run(updates=50)
    simulation.lost = set(range(990))
    begin = simulation.now
    simulation.run(updates=60)

    assert simulation.now - begin < 60 + 40


def test_a_sampler_with_unrolls_that_are_always_too_old_is_named() -> None:
    simulation = Simulation([1.0] * 4 + [60.0], max_lag=8)
    simulation.run(updates=1000)
    (warning,) = simulation.queue.warnings()
    assert warning.message.startswith("sampler-4 contributes nothing: the parameters of its last 10 unrolls")


def test_the_age_of_an_incomplete_batch_counts() -> None:
    models = ModelServer()
    models.publish(torch.zeros(1))
    queue = LearnerTrajectories(4, models, threading.Event(), max_lag=2)
    push = queue.services[f"{PATH}/push"]
    for sequence in (1, 2):
        push("sampler-0", {"incarnation": "a", "sequence": sequence, "version": 1, "item": {}})
    assert queue.get(3, timeout=0.0) == []
    assert queue.counts() == (2, 0, 0, 2, 0)
    for _ in range(3):  # of other learners
        models.publish(torch.zeros(1))
    for sequence in (3, 4, 5):
        push("sampler-0", {"incarnation": "a", "sequence": sequence, "version": 4, "item": {}})
    assert len(queue.get(3, timeout=0.0)) == 3
    assert queue.lags == [0, 0, 0]
    assert queue.counts() == (5, 3, 2, 0, 2)
    assert queue.get_state()["used"] == 3


@settings(max_examples=20 * SOAK)
@given(
    samplers=st.integers(1, 40),
    count=st.integers(1, 8),
    max_lag=st.integers(1, 16),
    capacity=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_items_that_are_too_old_are_dropped_and_counted(
    samplers: int, count: int, max_lag: int, capacity: int, seed: int
) -> None:
    source = random.Random(seed)
    speeds = [source.choice([0.1, 1.0, 10.0, 50.0]) for _ in range(samplers)]
    simulation = Simulation(speeds, count=count, max_lag=max_lag, capacity=capacity)
    simulation.run(updates=60)

    counts = simulation.queue.counts()
    assert max(simulation.lags) <= max_lag
    assert counts.used == 60 * count
    assert counts.stale == counts.dropped
    assert counts.pushed == counts.used + counts.dropped + counts.queued
