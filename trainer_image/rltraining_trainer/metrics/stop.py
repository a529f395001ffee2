"""Applies the rules of `spec.stop`, and computes the progress of a run."""

from __future__ import annotations

from dataclasses import dataclass

from rltraining_api.lifecycle import Stop

from rltraining_trainer.metrics.returns import EpisodeReturns, SmoothedReturn


@dataclass(frozen=True)
class StopCheck:
    """The progress of a run."""

    percent: float | None
    """0 to 100, the maximum over rules that count steps or seconds. None without such a rule."""
    reason: str | None
    """The rule that is met, in one sentence, or None."""


def check_stop(
    stop: Stop,
    *,
    environment_steps: int,
    seconds: float,
    returns: EpisodeReturns,
    smoothed: SmoothedReturn | None,
) -> StopCheck:
    """Checks all rules except those that depend on evaluations.

    Args:
        seconds: Seconds of training over all restarts.
        returns: Returns with capacity ``stop.mean_return.episodes``.
        smoothed: The smoothed return for ``stop.smoothed_return.at_least``, or None without that
            rule.
    """
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
    # Also false for NaN.
    if not returns.mean >= rule.at_least:
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
    return f"stop.{field} is met: {so_far:,} {what} of {limit:,}"
