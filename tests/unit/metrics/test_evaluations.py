"""The stop rules on evaluations, as a table, and a tracker's state across restarts and changed rules."""

from __future__ import annotations

from typing import Any

import pytest
from rltraining_api.evaluation import EvaluationResult
from rltraining_api.lifecycle import Stop
from rltraining_trainer.checkpoint import snapshot
from rltraining_trainer.metrics import EvaluationTracker

REACH = {"evaluation": {"atLeast": 100}}
REACH_TWICE = {"evaluation": {"atLeast": 100, "times": 2}}
THREE = {"noImprovement": {"evaluations": 3}}
THREE_BY_FIVE = {"noImprovement": {"evaluations": 3, "minDelta": 5}}
NEVER = {"seconds": 10**9}


def result(mean: float | None, step: int = 0) -> EvaluationResult:
    return EvaluationResult(environment_steps=step, episodes=10, mean_return=mean)


def tracker(stop: dict[str, Any], *means: float | None) -> EvaluationTracker:
    """Returns the tracker after evaluations with these mean returns, the n-th at step n."""
    made = EvaluationTracker(Stop.model_validate(stop))
    for step, mean in enumerate(means, start=1):
        made.add(result(mean, step), None)
    return made


@pytest.mark.parametrize(
    ("stop", "means", "reason"),
    [
        (REACH, [], None),
        (REACH, [99.9], None),
        (
            REACH,
            [50, 100],
            "stop.evaluation is met: the evaluation, of step 2, returned 100 on average over 10 episodes, at least 100 "
            "was asked for",
        ),
        (REACH, [100, 99], None),
        (REACH, [float("nan")], None),
        (REACH_TWICE, [100, 99, 100], None),
        (
            REACH_TWICE,
            [99, 100, 101],
            "stop.evaluation is met: the last of 2 such evaluations in a row, of step 3, returned 101 on average over 10 "
            "episodes, at least 100 was asked for",
        ),
        (REACH_TWICE, [100, None, 100], None),
        (THREE, [5, 5, 5], None),
        (THREE, [5, 6, 5, 5], None),
        (
            THREE,
            [5, 4, 3, 5],
            "stop.noImprovement is met: 3 evaluations in a row did not exceed the best mean return 5",
        ),
        (THREE, [None, None, None], "stop.noImprovement is met: 3 evaluations in a row did not exceed the best mean return"),
        # Small improvements add up: each is compared to the last mean that counted as an improvement.
        (THREE_BY_FIVE, [10, 13, 14, 16, 17, 18], None),
        (
            THREE_BY_FIVE,
            [10, 13, 14, 15],
            "stop.noImprovement is met: 3 evaluations in a row did not exceed the best mean return 10 by more than 5",
        ),
        (
            REACH | THREE,
            [1, 1, 1, 1],
            "stop.noImprovement is met: 3 evaluations in a row did not exceed the best mean return 1",
        ),
        (NEVER, [1, 1, 1, 1, 1], None),
    ],
)  # fmt: skip
def test_stop_rules(stop: dict[str, Any], means: list[float | None], reason: str | None) -> None:
    assert tracker(stop, *means).stop_reason == reason


def resume(old: EvaluationTracker, stop: dict[str, Any]) -> EvaluationTracker:
    """Returns a new process's tracker, from a checkpoint and under changed rules."""
    resumed = EvaluationTracker(Stop.model_validate(stop))
    resumed.set_state(snapshot(old.get_state()))
    return resumed


def change(old: EvaluationTracker, stop: dict[str, Any]) -> EvaluationTracker:
    """Returns the same process's tracker under changed rules."""
    old.set_stop(Stop.model_validate(stop))
    return old


under = pytest.mark.parametrize("continue_under", [resume, change])


@under
def test_the_same_rules_continue_their_rows(continue_under: Any) -> None:
    for stop, means, last in (
        (REACH_TWICE, [100], 100),
        (THREE, [5, 4, 4], 4),
        (THREE_BY_FIVE, [9, 1, 2], 3),
    ):
        continued = continue_under(tracker(stop, *means), stop)
        assert continued.stop_reason is None
        continued.add(result(last), None)
        assert continued.stop_reason is not None, stop
        assert continued.status.count == len(means) + 1


@under
def test_another_bound_is_met_by_the_last_evaluation_alone(continue_under: Any) -> None:
    lower = {"evaluation": {"atLeast": 40, "times": 2}}
    continued = continue_under(tracker(REACH_TWICE, 50, 50), lower)
    assert continued.stop_reason is None, "only the last is known to reach it"
    continued.add(result(41), None)
    assert continued.stop_reason is not None
    assert continue_under(tracker(REACH, 50), {"evaluation": {"atLeast": 40}}).stop_reason is not None


@under
def test_another_min_delta_restarts_the_count(continue_under: Any) -> None:
    continued = continue_under(tracker(THREE_BY_FIVE, 10, 11, 12), THREE)
    continued.add(result(9), None)
    continued.add(result(9), None)
    assert continued.stop_reason is None
    continued.add(result(9), None)
    assert continued.stop_reason is not None


def test_the_best_is_what_is_kept_and_stays_when_the_learner_goes_back() -> None:
    tracked = tracker(NEVER)
    tracked.add(result(5, step=1), "file:///best")
    checkpoint = snapshot(tracked.get_state())
    tracked.add(result(9, step=2), "file:///best")
    tracked.add(result(10, step=3), None)  # the policy could not be kept
    assert tracked.status.best == result(9, step=2)
    tracked.set_state(checkpoint)
    assert (tracked.status.count, tracked.status.last) == (1, result(5, step=1))
    assert (tracked.status.best, tracked.status.best_policy_uri) == (result(9, step=2), "file:///best")
    assert resume(tracked, NEVER).status.best is None, "whose policy may not be there"


def test_merged_evaluations_and_lost_processes_are_counted_across_restarts() -> None:
    tracked = tracker(NEVER, 1.0)
    tracked.add_merged(3)
    tracked.add_restart()
    status = resume(tracked, NEVER).status
    assert (status.count, status.merged, status.restarts) == (1, 3, 1)
