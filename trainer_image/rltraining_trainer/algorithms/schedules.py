"""Schedules of hyperparameters over a run."""

from __future__ import annotations

from rltraining_api.fields import Schedule


def scheduled(value: float, schedule: Schedule, environment_steps: int, total_steps: int | None) -> float:
    """``value`` after ``environment_steps``: as it is, or, if Linear, on its way down to 0 at ``total_steps``.

    ``total_steps`` is that of ``spec.stop`` now, which may change while the job runs. Without one there is no way to go, and
    the value stays (the API refuses Linear without ``stop.environmentSteps``).
    """
    if schedule != "Linear" or not total_steps:
        return value
    return value * max(0.0, 1.0 - environment_steps / total_steps)
