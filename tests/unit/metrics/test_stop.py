"""The stop rules, as a table."""

from __future__ import annotations

import math

import pytest
from rltraining_api.lifecycle import Stop
from rltraining_trainer.metrics import EpisodeReturns, SmoothedReturn, check_stop

BOTH = {"environmentSteps": 1000, "seconds": 60}
MEAN = {"meanReturn": {"atLeast": 475, "episodes": 3}}
SMOOTH = {"smoothedReturn": {"atLeast": 190, "times": 2}}


@pytest.mark.parametrize(
    ("stop", "steps", "seconds", "returns", "percent", "reason"),
    [
        (BOTH, 0, 0.0, [], 0.0, None),
        (BOTH, 250, 6.0, [], 25.0, None),
        (BOTH, 250, 30.0, [], 50.0, None),
        (BOTH, 1024, 1.0, [], 100.0, "stop.environmentSteps is met: 1,024 environment steps of 1,000"),
        (BOTH, 0, 60.5, [], 100.0, "stop.seconds is met: 60 seconds of training of 60"),
        (MEAN, 10**9, 1e9, [500, 500], None, None),  # requires the configured number of episodes
        (MEAN | BOTH, 100, 1.0, [500, 400, 500], 10.0, None),
        (
            MEAN | BOTH,
            100,
            1.0,
            [10, 500, 450, 475],
            100.0,
            "stop.meanReturn is met: the last 3 episodes returned 475 on average, at least 475 was asked for",
        ),
        (MEAN, 100, 1.0, [500, math.nan, 500], None, None),
        (SMOOTH, 0, 1.0, [190, 189], None, None),
        (SMOOTH, 0, 1.0, [math.nan, 500, 500], None, None),
        (
            SMOOTH,
            0,
            1.0,
            [190, 190],
            100.0,
            "stop.smoothedReturn is met: the smoothed return was at least 190 after 2 episodes in a row",
        ),
    ],
)
def test_stop_rules(
    stop: dict, steps: int, seconds: float, returns: list[float], percent: float | None, reason: str | None
) -> None:
    rules = Stop.model_validate(stop)
    episodes = EpisodeReturns(rules.mean_return.episodes if rules.mean_return else 100)
    smoothed = SmoothedReturn(rules.smoothed_return.at_least) if rules.smoothed_return else None
    for kept in filter(None, (episodes, smoothed)):
        kept.add(returns)
    check = check_stop(rules, environment_steps=steps, seconds=seconds, returns=episodes, smoothed=smoothed)
    assert (check.percent, check.reason) == (percent, reason)
