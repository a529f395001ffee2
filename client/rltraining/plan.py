"""Implements `rltrain plan`: predicts speed and network use of a run with other numbers of samplers, from its measured speed.

The model has two measured numbers. With n samplers a run makes v steps/s, and its learner waits for data for the share w of the
time. So a sampler collects v/n steps/s, and a learner that never waits learns v/(1-w) steps/s. With N samplers the run makes

    min(N v/n, v/(1-w)) steps/s.

In mode Sync of A3C, A2C and PPO, the learner waits while the samplers collect, and they wait while it learns. N samplers
collect N/n times as many steps in the same time, and learning from them takes N/n times as long:

    v N/n / (w + (1-w) N/n) steps/s.

Where the samplers compute the gradients, or where a replay memory has no limit on samples per insertion, the learner does not
limit the speed: N v/n. With IMPALA, and with A3C and A2C in mode Async, only samplers with a credit collect, so n and N are at
most the number of credits.

The bytes of a step do not depend on the number of samplers, so that what the learner receives and sends grows like the steps/s.
This does not hold for a replay memory without that limit, from which the learner draws at its own speed. And while an update
uses data of more samplers than there are, the learner sends fewer parameters for each step than to more samplers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rltraining_api import presets
from rltraining_api.bottleneck import BUSY_PERCENT_MIN, LEARNER_PERCENT
from rltraining_api.job import RLTrainingJob
from rltraining_api.policy_lag import (
    items_of_update,
    largest_mean,
    more_credits,
    samplers_with_credits,
    takes_turns,
)

from rltraining.errors import ClientError, UsageError
from rltraining.printable import say
from rltraining.sdk.client import RLTrainingClient
from rltraining.units import aligned, plural
from rltraining.why import state_of, unknown

DEFAULT = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of samplers for which a speed is predicted unless others are named."""
SAMPLERS_MAX = 1_000_000


@dataclass(frozen=True)
class Prediction:
    samplers: int
    steps_per_second: float
    learner_busy_percent: float | None
    """Percentage of the time for which the learner does not wait for data. None: too small to be predicted."""
    policy_lag: float | None
    """Upper bound of the mean, in parameter versions. None: not predicted for this algorithm."""
    received_bytes_per_second: float | None
    sent_bytes_per_second: float | None
    """Messages of the first learner. None: not measured, or not in proportion to the steps."""


def plan(target: str, samplers: str | None, client: Callable[[], RLTrainingClient]) -> None:
    """Prints a table. `client` is called only if the target is a job. Raises ClientError."""
    counts = _counts(samplers) if samplers is not None else DEFAULT
    job, is_local = state_of(target, client)
    predictions = predict(job, counts)
    # Print the measured numbers.
    progress, count = job.status.progress, job.replicas("sampler")
    say(
        f"Measured: {plural(count, 'sampler')}, {progress.steps_per_second:,.0f} steps/s, the learner waits for data "
        f"{progress.learner_wait_percent:.0f}% of the time. Predicted, if more processes run as fast as these:\n"
    )
    # Print the predictions.
    head = (
        "samplers",
        "steps/s",
        "learner busy",
        "mean policy lag at most",
        "MB/s received",
        "MB/s sent",
    )
    say(aligned([head, *map(_cells, predictions)], gap="  "))
    # Name the limits of the model.
    processes, cores, credits = (
        job.spec.learner.replicas + count,
        os.cpu_count() or 1,
        samplers_with_credits(job),
    )
    if is_local and processes > cores:
        say(
            f"\nThe {processes} processes shared {plural(cores, 'core')}: with a core for each, they may be faster."
        )
    if credits is not None and max(counts) > credits:
        say(f"\nMore than {plural(credits, 'sampler')} at a time need {more_credits(job)}.")


def _cells(one: Prediction) -> tuple[str, ...]:
    lag = "-" if one.policy_lag is None else f"{math.ceil(one.policy_lag):,}"
    busy = "-" if one.learner_busy_percent is None else f"{one.learner_busy_percent:.0f}%"
    traffic = (one.received_bytes_per_second, one.sent_bytes_per_second)
    megabytes = ("-" if rate is None else f"{rate / 1e6:,.2f}" for rate in traffic)
    return f"{one.samplers:,}", f"{one.steps_per_second:,.0f}", busy, lag, *megabytes


def predict(job: RLTrainingJob, counts: Sequence[int]) -> list[Prediction]:
    """Predicts the speed with each number of samplers. Raises ClientError if the run has not measured what this needs."""
    # Read the measured numbers.
    progress, samplers = job.status.progress, job.replicas("sampler")
    rate, waits = progress.steps_per_second, progress.learner_wait_percent
    name = job.metadata.name
    if rate == 0.0 and progress.environment_steps and waits is not None:
        raise ClientError(
            f"{name}: no steps arrived in the last seconds of the measurement, so that the speed is unknown: plan while steps "
            "arrive, or see what a running sampler is doing: rltrain stack"
        )
    if not rate or waits is None or not samplers:
        raise ClientError(f"{name}: {unknown(job).removeprefix('Unknown: ')}")
    # Find out what limits the speed.
    if job.status.preset is not None:
        job, _ = presets.resolve(job, job.status.preset)
    busy = 1.0 - waits / 100.0
    learner_limits = _learner_limits(job)
    in_turns = takes_turns(job)
    if learner_limits and not in_turns and waits < LEARNER_PERCENT:
        busy_learner = f"{name}: its learner waits for data only {waits:.0f}% of the time, so that"
        if samplers == 1:
            raise ClientError(
                f"{busy_learner} more samplers add nothing: rltrain why names what makes the learner faster"
            )
        raise ClientError(
            f"{busy_learner} the speed of its samplers is unknown: plan from a run with fewer samplers"
        )
    is_known = 100.0 * busy >= BUSY_PERCENT_MIN
    credits = samplers_with_credits(job) or max(samplers, *counts)
    received, sent = _bytes_per_step(job, rate)
    items = (items_of_update(job) or 0) * job.spec.learner.replicas
    # Apply the model.
    found = []
    for count in counts:
        times = min(count, credits) / min(samplers, credits)
        if not learner_limits or not is_known:
            steps, share = rate * times, busy
        elif in_turns:
            seconds = 1.0 - busy + busy * times
            steps, share = rate * times / seconds, busy * times / seconds
        else:
            share = min(1.0, busy * times)
            steps = rate * share / busy
        found.append(
            Prediction(
                count,
                steps,
                100.0 * share if is_known else None,
                largest_mean(job, count),
                None if received is None else received * steps,
                None if sent is None or items > min(count, samplers) else sent * steps,
            )
        )
    return found


def _bytes_per_step(job: RLTrainingJob, rate: float) -> tuple[float | None, float | None]:
    """Returns the bytes that the first learner receives and sends for each step, at the measured steps/s.

    None: not measured, or not the same with other numbers of samplers.
    """
    progress, replay = job.status.progress, job.spec.algorithm.replay
    received, sent = progress.received_bytes_per_second, progress.sent_bytes_per_second
    if received is None or sent is None or (replay is not None and replay.samples_per_insert is None):
        return None, None
    return received / rate, sent / rate


def _learner_limits(job: RLTrainingJob) -> bool:
    """Returns whether samplers wait for the learner if it is slow, and it has more work with more of them."""
    replay = job.spec.algorithm.replay
    if replay is not None:
        return replay.samples_per_insert is not None
    return job.spec.gradients_at != "Samplers" or not takes_turns(job)


def _counts(text: str) -> list[int]:
    """Reads `1,2,500`. Raises UsageError."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1 or max(counts) > SAMPLERS_MAX:
        raise UsageError(
            f"--samplers {text}: write numbers from 1 to {SAMPLERS_MAX:,}, separated by commas, such as 1,2,500"
        )
    return counts
