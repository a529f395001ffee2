"""Schedules of hyperparameters over a run."""

from __future__ import annotations

from rltraining_api.fields import Schedule


def scheduled(value: float, schedule: Schedule, environment_steps: int, total_steps: int | None) -> float:
    """Returns the scheduled value after ``environment_steps``. Linear decreases it to 0 at
    ``total_steps``.

    Learners do not count the steps of the current update, as openai/baselines, CleanRL and
    scalable_agent do: the first update uses the initial value, and the last update a positive
    value. Stable-Baselines3 includes those steps, so its last update has a value of 0.

    ``total_steps`` is the current ``spec.stop.environmentSteps``, which may change while the job
    runs. Without it the value is constant, but the API rejects Linear in that case.
    """
    if schedule != "Linear" or not total_steps:
        return value
    return value * max(0.0, 1.0 - environment_steps / total_steps)
