"""The number of samplers follows a simulated learner, settles, and obeys the spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from operator_world import START
from rltraining_api.autoscale import WAIT_PERCENT_MAX, AutoscaleStatus
from rltraining_api.roles import SamplerRole
from rltraining_api.status import Progress
from rltraining_operator.pods.autoscale import (
    FORGET_WINDOWS,
    WAIT_PERCENT_LOW,
    Sight,
    scale,
)

SECONDS = 30.0
REPORTS = 6
"""Reports of the learner in each window."""


def role(replicas: int = 1, least: int = 1, most: int = 100) -> SamplerRole:
    return SamplerRole.model_validate({"replicas": replicas, "autoscale": {"min": least, "max": most}})


@dataclass
class Simulation:
    """A learner, samplers that are ready one report after their creation, and the operator."""

    role: SamplerRole
    capacity: float
    """Steps per second that the learner can use."""
    produced: Callable[[int], float] = lambda samplers: 100.0 * samplers
    """Steps per second of this number of samplers."""
    noise: float = 0.0
    """Largest error of the reported percentage and, in percent, of the speed."""
    state: AutoscaleStatus | None = None
    ready: int = 0
    restarting: int = 0
    """Number of samplers that are not ready at every second report."""
    fit: int = 1000
    """Number of samplers for which the cluster has room."""
    ticks: int = 0
    random: Random = field(default_factory=lambda: Random(1))

    @property
    def target(self) -> int:
        assert self.state is not None
        return self.state.target

    def wait(self, samplers: int) -> float:
        """The percentage of the time for which the learner waits with this number of samplers."""
        return 100.0 * (1 - min(1.0, self.produced(samplers) / self.capacity))

    def tick(self) -> None:
        """Simulates one report and one pass."""
        self.ticks += 1
        now = START + timedelta(seconds=self.ticks * SECONDS / REPORTS)
        used = min(self.produced(self.ready), self.capacity)
        wait = min(max(self.wait(self.ready) + self._error(), 0.0), 100.0)
        progress = Progress(
            environment_steps=self.ticks,
            updates=self.ticks,
            learner_wait_percent=wait,
            steps_per_second=used * (1 + self._error() / 100),
        )
        self.state = scale(self.role, self.state, Sight(frozenset(range(self.ready)), progress), now, SECONDS)
        self.ready = min(self.target, self.fit) - self.restarting * (self.ticks % 2)

    def run(self, windows: int) -> list[int]:
        """Returns each number of samplers in order, the current one first."""
        return list(self._targets(windows))

    def _targets(self, windows: int) -> Iterator[int]:
        last = 0
        for _ in range(windows * (REPORTS + 2)):
            self.tick()
            if self.target != last:
                yield (last := self.target)

    def _error(self) -> float:
        return self.random.uniform(-self.noise, self.noise)


@pytest.mark.parametrize("noise", [0.0, 1.5])
@pytest.mark.parametrize("start", [1, 3, 40])
@pytest.mark.parametrize("capacity", [60, 110, 290, 450, 720, 1000, 3000])
def test_the_smallest_number_is_found_that_keeps_the_learner_busy(
    capacity: float, start: int, noise: float
) -> None:
    simulation = Simulation(role(start), capacity, noise=noise)
    simulation.run(40)
    found = simulation.target
    assert simulation.wait(found) <= WAIT_PERCENT_MAX + noise
    is_least = found == 1 or simulation.wait(found - 1) > WAIT_PERCENT_MAX - noise
    assert is_least or simulation.wait(found) >= WAIT_PERCENT_LOW - noise
    later = simulation.run(FORGET_WINDOWS // 2)
    assert later[-1] == found
    assert len(later) in (1, 3), "it settles, and tries a smaller number at most once"


def test_few_samplers_at_the_start_are_doubled_until_the_need_can_be_estimated() -> None:
    simulation = Simulation(role(1), 1000)
    assert simulation.run(20) == [1, 2, 4, 8, 10, 9]
    assert simulation.state is not None
    assert simulation.state.message == "the learner waited for data only 0% of the time with 10"


def test_a_number_that_was_too_few_is_tried_again_once_in_a_long_while() -> None:
    simulation = Simulation(role(1), 290, noise=1.5)
    assert simulation.run(20)[-1] == 3
    later = simulation.run(4 * FORGET_WINDOWS)
    assert set(later) == {2, 3}
    assert 3 <= later.count(2) <= 6
    assert later[-1] == 3


def test_the_number_falls_when_the_learner_becomes_slower_and_rises_when_it_is_fast_again() -> None:
    simulation = Simulation(role(1), 500, noise=1.0)
    assert simulation.run(15)[-1] == 5
    simulation.capacity = 200
    assert simulation.run(8)[-1] == 2, "before the numbers that were too few are forgotten"
    simulation.capacity = 500
    assert simulation.run(8)[-1] == 5


@pytest.mark.parametrize("start", [1, 2, 4])
def test_samplers_that_share_cores_do_not_become_more(start: int) -> None:
    """With any number of samplers, the learner waits for half of the time."""
    simulation = Simulation(role(start), 200, produced=lambda samplers: 100.0)
    assert simulation.run(FORGET_WINDOWS // 2) == [start, 2 * start, start]


def test_a_learner_that_takes_turns_with_its_samplers_gets_more_while_they_help() -> None:
    """PPO behaves so: an update takes a second for each rollout, and the rollouts together take three."""
    simulation = Simulation(role(1), 1.0, produced=lambda samplers: samplers / (samplers + 3))
    targets = simulation.run(FORGET_WINDOWS // 2)
    assert targets[:4] == [1, 2, 4, 8]
    assert targets == sorted(targets)
    assert simulation.wait(targets[-1]) <= WAIT_PERCENT_MAX < simulation.wait(targets[-2])


@pytest.mark.parametrize(("capacity", "found"), [(5000, 4), (50, 2)])
def test_the_number_stays_within_its_bounds(capacity: float, found: int) -> None:
    simulation = Simulation(role(3, 2, 4), capacity)
    assert set(simulation.run(20)) <= {2, 3, 4}
    assert simulation.target == found


@pytest.mark.parametrize(("replicas", "target"), [(1, 2), (3, 3), (9, 4)])
def test_the_first_number_is_that_of_the_spec_within_the_bounds(replicas: int, target: int) -> None:
    state = scale(role(replicas, 2, 4), None, Sight(frozenset()), START, SECONDS)
    assert state is not None
    assert (state.target, state.state) == (target, "Active")


def test_samplers_that_do_not_fit_into_the_cluster_stop_the_rise_and_not_the_fall() -> None:
    simulation = Simulation(role(1), 1000, fit=6)
    assert simulation.run(20) == [1, 2, 4, 8], "it waits for room for eight"
    simulation.capacity = 290
    assert simulation.run(FORGET_WINDOWS)[-1] == 3


def test_single_restarts_among_many_samplers_do_not_hold_the_decision_up() -> None:
    simulation = Simulation(role(20), 5000, restarting=1)
    assert 42 <= simulation.run(20)[-1] <= 50


def measured(state: AutoscaleStatus | None, seconds: float, wait: float | None, ready: int) -> Any:
    """Returns the state after a report at this time."""
    progress = Progress(updates=1, environment_steps=1, learner_wait_percent=wait, steps_per_second=9.0)
    now = START + timedelta(seconds=seconds)
    return scale(role(2), state, Sight(frozenset(range(ready)), progress), now, SECONDS)


def test_a_window_counts_reports_of_its_second_half_with_a_constant_number_of_ready_samplers() -> None:
    state = measured(None, 0, 90.0, 2)
    for seconds in (5, 14):
        state = measured(state, seconds, 90.0, 2)
    assert (state.window.reports, state.window.since) == (0, START)
    state = measured(state, 16, 20.0, 2)
    state = measured(state, 18, None, 2)
    state = measured(state, 20, 30.0, 2)
    assert (state.window.reports, state.window.wait_percent) == (2, 25.0)
    restarted = measured(state, 21, 90.0, 1)
    assert (restarted.window.reports, restarted.window.ready) == (0, 1)
    assert measured(state, 29, 10.0, 2).target == 2
    decided = measured(state, 30, 10.0, 2)
    assert (decided.target, decided.message) == (3, "the learner waited for data 20% of the time with 2")


def test_a_change_of_replicas_overrides_the_number_until_autoscale_is_changed() -> None:
    simulation = Simulation(role(1), 290)
    simulation.run(20)
    simulation.role = role(150)
    assert simulation.run(20) == [150], "at once, and beyond the bounds"
    assert simulation.state is not None
    assert simulation.state.state == "Overridden"
    assert "turns sampler.autoscale off" in simulation.state.message
    simulation.role = role(2)
    assert simulation.run(20) == [2]
    simulation.role = role(2, 1, 50)
    assert simulation.run(20) == [2, 3]
    assert simulation.state is not None
    assert simulation.state.state == "Active"


def test_new_bounds_apply_at_once_to_the_present_number() -> None:
    simulation = Simulation(role(1), 1000)
    assert simulation.run(20)[-1] == 9
    simulation.role = role(1, 1, 5)
    assert simulation.run(20) == [5]
    simulation.role = role(2, 3, 100)
    assert simulation.run(1)[0] == 3, "both have changed: the new number within the new bounds"


def test_without_autoscale_there_is_no_number() -> None:
    simulation = Simulation(role(1), 290)
    simulation.run(20)
    assert scale(SamplerRole(replicas=2), simulation.state, Sight(frozenset()), START, SECONDS) is None
