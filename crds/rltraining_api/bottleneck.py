"""Names the bottleneck of a run, for `rltrain why` and the job's status."""

from __future__ import annotations

import math

from rltraining_api.algorithms.impala import Impala
from rltraining_api.autoscale import WAIT_PERCENT_MAX
from rltraining_api.fields import Preset
from rltraining_api.job import RLTrainingJob
from rltraining_api.policy_lag import more_credits, samplers_with_credits, takes_turns
from rltraining_api.preset_values import PRESET_VALUES

LEARNER_PERCENT, SAMPLERS_PERCENT = WAIT_PERCENT_MAX, 50.0
"""The learner is the bottleneck if it waits for data for a smaller share of the time than the first, and the samplers
are if it waits for a larger share than the second."""
BUSY_PERCENT_MIN = 2.0
"""Percentage of the time that the learner must be busy for an estimate of how many samplers it needs."""


def find_bottleneck(job: RLTrainingJob, cores: int | None) -> str | None:
    """Describes what limits the speed of a run. None: not measured. `cores`: of the machine that all its processes
    share, if they do."""
    percent = job.status.progress.learner_wait_percent
    if percent is None:
        return None
    waits = f"the learner waits for data {percent:.0f}% of the time"
    learners, samplers = job.spec.learner.replicas, job.replicas("sampler")
    in_turns = takes_turns(job)
    if percent < (SAMPLERS_PERCENT if in_turns else LEARNER_PERCENT):
        more = "" if in_turns else ", so that more samplers add nothing"
        return (
            f"The learner is the bottleneck: {waits.replace('data', 'data only')}{more}.\n"
            f"Faster: a GPU{_threads(job, cores)} if the network is large, a smaller network, {_updates(job)}or more "
            f"learners (spec.learner.replicas, now {learners})."
        )
    # Samplers without a credit add nothing, and use no core.
    limit = samplers_with_credits(job)
    collecting = samplers if limit is None else min(samplers, limit)
    if collecting < samplers:
        more = (
            f"{more_credits(job)}, since only {collecting:,} of {samplers:,} samplers can collect at a time"
        )
    else:
        enough = "" if in_turns else _enough_samplers(job, percent)
        more = f"more samplers ({_samplers_field(job)}{enough})"
    is_full = cores is not None and learners + collecting > cores
    if percent <= SAMPLERS_PERCENT:
        faster = "more samplers together with" if is_full and collecting == samplers else f"{more}, and then"
        return f"Learner and samplers are balanced: {waits}.\nFaster: {faster} a faster learner."
    stuck = _stuck(job)
    if is_full:
        return (
            f"The cores of this machine or the samplers are the bottleneck: {waits}, and {learners + samplers} processes share "
            f"{cores:,} core{'' if cores == 1 else 's'}.{stuck}\nFaster: more cores, or fewer samplers with more environments "
            f"in each ({_samplers_field(job)}; spec.environment.numEnvs).\nIf the cores are not busy, because steps of the "
            f"environments wait: {more}{_stepping(job, ', or ')}."
        )
    stepping = _stepping(job, "\nIf a step of an environment takes a millisecond or more: ")
    return (
        f"The samplers are the bottleneck: {waits}.{stuck}\nFaster: {more}, or more environments in each "
        f"(spec.environment.numEnvs).{stepping}{'.' if stepping else ''}"
    )


def _updates(job: RLTrainingJob) -> str:
    """Names the field that determines how many updates a learner makes for each step. Empty if there is none."""
    algorithm = job.spec.algorithm
    field = "epochs" if algorithm.ppo else "replay.samplesPerInsert" if algorithm.replay else ""
    if (impala := algorithm.impala) is not None and _updates_per_batch(impala, job.status.preset) > 1:
        field = "updatesPerBatch"
    return f"fewer updates for each step (spec.algorithm.{algorithm.name}.{field}), " if field else ""


def _updates_per_batch(impala: Impala, preset: Preset | None) -> int:
    """Returns the number of updates, which the task determines unless the job does."""
    if preset is None or impala.has_set("updates_per_batch"):
        return impala.updates_per_batch
    value, _ = PRESET_VALUES["impala"][preset].get("updatesPerBatch", (impala.updates_per_batch, ""))
    return int(value)


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


def _stuck(job: RLTrainingJob) -> str:
    """Names the command that shows what the samplers of a running job do, if none of their steps arrive."""
    if job.status.phase != "Running" or job.status.progress.steps_per_second != 0.0:
        return ""
    return (
        "\nNo steps have arrived in the last seconds. If this continues, a sampler may be stuck. To see what it is doing: "
        "rltrain stack."
    )


def _stepping(job: RLTrainingJob, before: str) -> str:
    """Names the remedy for environments that wait, which more of them do not make faster one after the other."""
    if job.spec.environment.stepping != "Serial":
        return ""
    return f"{before}spec.environment.stepping: Threads or Processes"
