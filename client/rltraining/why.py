"""Implements `rltrain why`: the bottleneck of a run in a sentence or two."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

from rltraining_api.job import IN_TURNS, RLTrainingJob
from rltraining_operator.pods.autoscale import WAIT_PERCENT_MAX

from rltraining import workdir
from rltraining.errors import ClientError, UsageError
from rltraining.policy_lag import more_credits, samplers_with_credits
from rltraining.printable import say
from rltraining.sdk.client import RLTrainingClient
from rltraining.summary import failure
from rltraining.units import plural

LEARNER_PERCENT, SAMPLERS_PERCENT = WAIT_PERCENT_MAX, 50.0
"""The learner is the bottleneck if it waits for data for a smaller share of the time than the first, and the samplers
are if it waits for a larger share than the second."""
BUSY_PERCENT_MIN = 2.0
"""Percentage of the time that the learner must be busy for an estimate of how many samplers it needs."""


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
    return client().get(target), False


def bottleneck(job: RLTrainingJob, cores: int | None) -> str:
    """Describes what limits the speed of a run. `cores`: of the machine that all its processes share, if they do."""
    percent = job.status.progress.learner_wait_percent
    if percent is None:
        return unknown(job)
    waits = f"the learner waits for data {percent:.0f}% of the time"
    learners, samplers = job.spec.learner.replicas, job.replicas("sampler")
    in_turns = job.spec.algorithm.name in IN_TURNS
    if percent < (SAMPLERS_PERCENT if in_turns else LEARNER_PERCENT):
        more = "" if in_turns else ", so that more samplers add nothing"
        return (
            f"The learner is the bottleneck: {waits.replace('data', 'data only')}{more}.\n"
            f"Faster: a GPU{_threads(job, cores)} if the network is large, a smaller network, {_updates(job)}or more "
            f"learners (spec.learner.replicas, now {learners})."
        )
    if percent <= SAMPLERS_PERCENT:
        return f"Learner and samplers are balanced: {waits}.\nFaster: more samplers together with a faster learner."
    if cores is not None and learners + samplers > cores:
        return (
            f"The cores of this machine are the bottleneck: {waits}, and {learners + samplers} processes share "
            f"{plural(cores, 'core')}.\nFaster: more cores, or fewer samplers with more environments in each "
            f"({_samplers_field(job)}; spec.environment.numEnvs).{_stepping(job)}"
        )
    enough = "" if in_turns else _enough_samplers(job, percent)
    return (
        f"The samplers are the bottleneck: {waits}.\nFaster: more samplers ({_samplers_field(job)}{enough}), or more "
        f"environments in each (spec.environment.numEnvs).{_stepping(job)}"
    )


def _updates(job: RLTrainingJob) -> str:
    """Names the field that determines how many updates a learner makes for each step. Empty if there is none."""
    algorithm = job.spec.algorithm
    field = "epochs" if algorithm.ppo else "replay.samplesPerInsert" if algorithm.replay else ""
    return f"fewer updates for each step (spec.algorithm.{algorithm.name}.{field}), " if field else ""


def _threads(job: RLTrainingJob, cores: int | None) -> str:
    """Names the field with the learner's threads. Empty if this machine has no more cores for them."""
    learner = job.spec.learner
    threads = learner.threads or 1
    is_full = cores is not None and learner.replicas * threads + job.replicas("sampler") >= cores
    return "" if is_full else f" or more threads (spec.learner.threads, now {threads})"


def _enough_samplers(job: RLTrainingJob, percent: float) -> str:
    """Estimates how many samplers keep the learner busy, if each adds the same. Empty if it hardly has any work."""
    busy = 100.0 - percent
    if busy < BUSY_PERCENT_MIN:
        return ""
    needed = math.ceil(100.0 * job.replicas("sampler") / busy)
    limit = samplers_with_credits(job)
    also = f", with {more_credits(job)}" if limit is not None and needed > limit else ""
    return f"; about {needed} keep the learner busy{also}"


def _samplers_field(job: RLTrainingJob) -> str:
    """Names the field that determines the number of samplers, with its value."""
    bounds, status = job.spec.sampler.autoscale, job.status.autoscale
    if bounds is not None and (status is None or status.state == "Active"):
        return f"spec.sampler.autoscale.max, now {bounds.max}"
    return f"spec.sampler.replicas, now {job.replicas('sampler')}"


def _stepping(job: RLTrainingJob) -> str:
    """Names the remedy for environments that wait, which more of them do not make faster one after the other."""
    if job.spec.environment.stepping != "Serial":
        return ""
    return "\nIf a step of an environment takes a millisecond or more: spec.environment.stepping: Threads or Processes."


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
