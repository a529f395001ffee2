"""`spec.stop`: how far a run has come, and whether it is done."""

from __future__ import annotations

from dataclasses import dataclass

from rltraining_api.lifecycle import Stop

from rltraining_trainer.metrics.returns import EpisodeReturns, SmoothedReturn


@dataclass(frozen=True)
class StopCheck:
    """``percent`` 0 to 100 of the rule that has come furthest (of returns it cannot be told); ``reason``: one
    sentence once a rule is met."""

    percent: float | None
    reason: str | None


def check_stop(
    stop: Stop,
    *,
    environment_steps: int,
    seconds: float,
    returns: EpisodeReturns,
    smoothed: SmoothedReturn | None,
) -> StopCheck:
    """``seconds``: of training, over all restarts; ``returns``: as many as ``stop.mean_return.episodes``;
    ``smoothed``: made with ``stop.smoothed_return.at_least``, or None without that rule."""
    reason = (
        _mean_return(stop, returns)
        or _smoothed_return(stop, smoothed)
        or _counted("environmentSteps", environment_steps, stop.environment_steps, "environment steps")
        or _counted("seconds", int(seconds), stop.seconds, "seconds of training")
    )
    if reason:
        return StopCheck(100.0, reason)
    counted = ((environment_steps, stop.environment_steps), (seconds, stop.seconds))
    return StopCheck(max((100.0 * so_far / limit for so_far, limit in counted if limit), default=None), None)


def _mean_return(stop: Stop, returns: EpisodeReturns) -> str | None:
    rule = stop.mean_return
    if rule is None or not returns.full or returns.mean is None:
        return None
    if not returns.mean >= rule.at_least:  # which NaN is not either
        return None
    return (
        f"stop.meanReturn is met: the last {returns.capacity} episodes returned {returns.mean:.6g} "
        f"on average, at least {rule.at_least:g} was asked for"
    )


def _smoothed_return(stop: Stop, smoothed: SmoothedReturn | None) -> str | None:
    rule = stop.smoothed_return
    if rule is None or smoothed is None or smoothed.longest < rule.times:
        return None
    return (
        f"stop.smoothedReturn is met: the smoothed return was at least {rule.at_least:g} "
        f"after {rule.times} episodes in a row"
    )


def _counted(field: str, so_far: int, limit: int | None, what: str) -> str | None:
    if limit is None or so_far < limit:
        return None
    return f"stop.{field} is met: {so_far} {what} of {limit}"
