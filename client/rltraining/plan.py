"""Implements `rltrain plan`: predicts the speed of a run with other numbers of samplers, from its measured speed.

The model has two measured numbers. With n samplers a run makes v steps/s, and its learner waits for data for the share w of the
time. So a sampler collects v/n steps/s, and a learner that never waits learns v/(1-w) steps/s. With N samplers the run makes

    min(N v/n, v/(1-w)) steps/s.

The learner of A2C and PPO waits while the samplers collect, and they wait while it learns. N samplers collect N/n times as many
steps in the same time, and learning from them takes N/n times as long:

    v N/n / (w + (1-w) N/n) steps/s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rltraining_api.job import IN_TURNS, RLTrainingJob

from rltraining.errors import ClientError, UsageError
from rltraining.printable import say
from rltraining.sdk.client import RLTrainingClient
from rltraining.units import plural
from rltraining.why import LEARNER_PERCENT, state_of

DEFAULT = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of samplers for which a speed is predicted unless others are named."""


@dataclass(frozen=True)
class Prediction:
    samplers: int
    steps_per_second: float
    learner_busy_percent: float
    """Share of the time for which the learner does not wait for data."""
    policy_lag: float | None
    """Upper bound in parameter versions. None: not predicted for this algorithm."""


def plan(target: str, samplers: str | None, client: Callable[[], RLTrainingClient]) -> None:
    """Prints a table. `client` is called only if the target is a job. Raises ClientError."""
    counts = _counts(samplers) if samplers is not None else DEFAULT
    job, is_local = state_of(target, client)
    predictions = predict(job, counts)
    # Print the measured numbers.
    progress, count = job.status.progress, job.replicas("sampler")
    say(
        f"Measured: {plural(count, 'sampler')}, {progress.steps_per_second:,.0f} steps/s, the learner waits for data "
        f"{progress.learner_wait_percent:.0f}% of the time. Predicted, if each process has a core:\n"
    )
    # Print the predictions.
    lines = [("samplers", "steps/s", "learner busy", "policy lag at most"), *map(_cells, predictions)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        say("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))
    # Warn about processes that were slower than they are elsewhere.
    processes, cores = job.spec.learner.replicas + count, os.cpu_count() or 1
    if is_local and processes > cores:
        say(
            f"\nThe {processes} measured processes shared {plural(cores, 'core')}. With a core for each, the speed is "
            "higher than predicted."
        )


def _cells(one: Prediction) -> tuple[str, str, str, str]:
    lag = "-" if one.policy_lag is None else f"{one.policy_lag:.0f}"
    return f"{one.samplers:,}", f"{one.steps_per_second:,.0f}", f"{one.learner_busy_percent:.0f}%", lag


def predict(job: RLTrainingJob, counts: Sequence[int]) -> list[Prediction]:
    """Predicts the speed with each number of samplers. Raises ClientError if the run has not measured what this needs."""
    # Read the measured numbers.
    progress, samplers = job.status.progress, job.replicas("sampler")
    rate, waits = progress.steps_per_second, progress.learner_wait_percent
    name = job.metadata.name
    if not rate or waits is None or not samplers:
        raise ClientError(
            f"{name}: its speed has not been measured: plan from a run that has trained for some seconds"
        )
    if waits < LEARNER_PERCENT:
        raise ClientError(
            f"{name}: its learner waits for data only {waits:.0f}% of the time, so that the speed of its samplers is "
            "unknown: plan from a run with fewer samplers"
        )
    # Apply the model.
    busy = 1.0 - waits / 100.0
    found = []
    for count in counts:
        times = count / samplers
        if job.spec.algorithm.name in IN_TURNS:
            steps = rate * times / (1.0 - busy + busy * times)
            share = busy * times / (1.0 - busy + busy * times)
        else:
            share = min(1.0, busy * times)
            steps = rate * share / busy if busy else rate * times
        found.append(Prediction(count, steps, 100.0 * share, _policy_lag(job, count)))
    return found


def _policy_lag(job: RLTrainingJob, samplers: int) -> float | None:
    """Returns the largest mean lag. A sampler collects one unroll while another one is under way, and credits limit
    their number."""
    impala = job.spec.algorithm.impala
    if impala is None:
        return None
    lag = 2.0 * samplers / impala.batch_unrolls
    return lag if impala.max_policy_lag is None else min(lag, impala.max_policy_lag / 2)


def _counts(text: str) -> list[int]:
    """Reads `1,2,500`. Raises UsageError."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise UsageError(f"--samplers {text}: write numbers from 1 on, separated by commas, such as 1,2,500")
    return counts
