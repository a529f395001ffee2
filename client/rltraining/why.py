"""Implements `rltrain why`: the bottleneck of a run in a sentence or two."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rltraining_api.bottleneck import find_bottleneck
from rltraining_api.job import RLTrainingJob

from rltraining import workdir
from rltraining.errors import ClientError, UsageError
from rltraining.printable import say
from rltraining.sdk.client import RLTrainingClient
from rltraining.sdk.errors import ClusterUnreachableError
from rltraining.summary import failure


def why(target: str, client: Callable[[], RLTrainingClient]) -> None:
    """Prints the bottleneck. `client` is called only if the target is a job. Raises ClientError."""
    job, is_local = state_of(target, client)
    say(bottleneck(job, os.cpu_count() if is_local else None))


def state_of(target: str, client: Callable[[], RLTrainingClient]) -> tuple[RLTrainingJob, bool]:
    """Returns the job of a run's folder, or a job in a cluster, and whether it is the former. Raises ClientError."""
    folder = Path(target)
    if workdir.holds_run(folder):
        job = workdir.last_state(folder)
        if job is None:
            raise ClientError(
                f"{folder / workdir.STATUS_FILE}: cannot be read: the run has not started, or the file is damaged"
            )
        return job, True
    if os.sep in target or folder.is_dir():
        raise UsageError(f"{target}: holds no run: name the folder of a run, or a job in a cluster")
    try:
        return client().get(target), False
    except ClusterUnreachableError as error:
        raise ClusterUnreachableError(
            f"{target}: no folder here holds such a run, and as a job in a cluster it cannot be read: {error}"
        ) from error


def bottleneck(job: RLTrainingJob, cores: int | None) -> str:
    """Describes what limits the speed of a run, or why that is unknown. `cores` as for `find_bottleneck`."""
    return find_bottleneck(job, cores) or unknown(job)


def unknown(job: RLTrainingJob) -> str:
    """Explains why the speed of a run has not been measured."""
    status = job.status
    if status.phase == "Failed":
        return f"Unknown: the run failed before its speed was measured: {failure(status).splitlines()[0]}"
    if status.progress.environment_steps and job.spec.algorithm.entry_point is not None:
        return "Unknown: only an algorithm that trains with `run.train` measures how long its learner waits for data."
    if status.phase == "Running" and not status.progress.environment_steps:
        return (
            f"Unknown: no steps have arrived yet. A sampler sends its steps together{_first_message(job)}. To see what it is "
            "doing: rltrain stack."
        )
    return f"Unknown: no training has been measured yet (phase {status.phase})."


def _first_message(job: RLTrainingJob) -> str:
    """States how many steps a sampler sends together. Empty if that is not known."""
    settings, environment = job.spec.algorithm.parameters, job.spec.environment
    for name in ("rollout_length", "unroll_length"):
        if hasattr(settings, name) and settings.has_set(name) and environment.has_set("num_envs"):
            length, environments = getattr(settings, name), environment.num_envs
            field = name.replace("_l", "L")
            return f": {length * environments:,} ({field} {length} x numEnvs {environments})"
    return ""
