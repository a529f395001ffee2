"""Runs one pass over one job: observe, plan, act."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from rltraining_api.contract import LearnerReport
from rltraining_api.names import LABEL_ROLE

from rltraining_operator.cluster import Cluster, Event, Key, Manifest, Ref
from rltraining_operator.errors import ClusterError, NameTakenError, NotFoundError, RejectedError
from rltraining_operator.observe.admission import AdmissionFailure, parse_admission_failure
from rltraining_operator.observe.answers import BadReport
from rltraining_operator.observe.mounts import first_without_volumes
from rltraining_operator.observe.observed import Observed
from rltraining_operator.plan import Plan, plan, plan_invalid
from rltraining_operator.pods.children import REMEDIES
from rltraining_operator.pods.rollout import is_in_progress
from rltraining_operator.settings import Settings
from rltraining_operator.status.events import action_events
from rltraining_operator.status.reports import is_report_due

PARALLEL_CALLS = 16
Clock = Callable[[], datetime]
T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)


async def reconcile(cluster: Cluster, key: Key, clock: Clock, settings: Settings) -> float | None:
    """Brings the job closer to its spec. Returns after how many seconds the next pass is due, or
    None.

    Raises `ClusterError`. The next pass completes what was left undone.
    """
    # Read the job and its children.
    observed = await cluster.observe(key)
    if observed is None:
        return None
    # Request the first learner's report if it is due, read the events of a pod without volumes, and
    # plan.
    job = observed.job
    if job is None:
        made = plan_invalid(observed, clock())
    else:
        if is_report_due(observed.status, clock(), settings):
            observed = await _with_report(cluster, observed)
        observed = await _with_mount_failure(cluster, observed, clock())
        made = plan(job, observed, clock(), settings)
    try:
        rejection = None
        if job is not None and observed.status.observed_generation is None and made.create:
            # A new job: create its children before its status is written, so that one write of the
            # status covers both. No failures can be lost, because none are counted yet.
            rejection = await _make_all(cluster, key, observed, made)
            again = await cluster.observe(key)
            if again is None or again.uid != observed.uid or again.job is None:
                return 0.0  # deleted, or replaced by a job of the same name: observe again
            observed, job = _as_heard(again, observed), again.job
            made = plan(job, observed, clock(), settings)
        # Write the status, then delete and create children. A failure must be in the status before the
        # pod that shows it is deleted.
        if rejection is None:
            await _write(cluster, key, observed, made)
            rejection = await _make_all(cluster, key, observed, made)
        if rejection is not None and job is not None:
            # Plan again to report the rejection in the status of this pass, and to make room for a
            # learner or replay pod that the quota refuses.
            status, going = made.status or observed.status, made.delete
            observed = replace(observed, status=status, unreadable="", rejection=rejection)
            made = plan(job, observed, clock(), settings)
            await _write(cluster, key, observed, made)
            await _delete(cluster, key, observed, [ref for ref in made.delete if ref not in going])
    except NotFoundError:
        log.info("%s: deleted meanwhile", key)
        return None
    return made.requeue_after


async def _with_report(cluster: Cluster, observed: Observed) -> Observed:
    """Requests the report of the first learner if its trainer runs. Returns the observation with the
    answer. The last report of a trainer that has ended is in its termination message, and is newer
    than an answer that the cluster has kept."""
    pod = observed.first_learner
    if pod is None or not pod.trainer_running:
        return observed
    answer = await cluster.learner_report(pod, observed.token)
    if isinstance(answer, LearnerReport):
        return replace(observed, report=answer)
    if isinstance(answer, BadReport):
        return replace(observed, bad_report=answer.problem)
    return replace(observed, awaited=answer is not None)


async def _with_mount_failure(cluster: Cluster, observed: Observed, now: datetime) -> Observed:
    """Reads the events of the first pod that has a node and no volumes. Returns the observation with
    the failure that they name."""
    over = observed.status.completion_time is not None
    pod = None if over or not observed.managed else first_without_volumes(observed.pods, now)
    return observed if pod is None else replace(observed, mount_failure=await cluster.mount_failure(pod))


def _as_heard(observed: Observed, before: Observed) -> Observed:
    """Returns the observation with what was requested earlier in this pass."""
    return replace(
        observed,
        report=before.report,
        bad_report=before.bad_report,
        awaited=before.awaited,
        mount_failure=before.mount_failure,
    )


async def _make_all(cluster: Cluster, key: Key, observed: Observed, made: Plan) -> AdmissionFailure | None:
    """Deletes and creates the planned children and emits events. Returns the first rejection, if
    any."""
    await _delete(cluster, key, observed, made.delete)
    rejections, created = await _make(cluster, key, made)
    in_rollout = is_in_progress(observed.status)
    await _emit(cluster, key, observed, action_events(created, (), in_rollout=in_rollout))
    return rejections[0] if rejections else None


async def _delete(cluster: Cluster, key: Key, observed: Observed, refs: Sequence[Ref]) -> None:
    await _each(refs, lambda ref: cluster.delete(key, ref))
    deleted, in_rollout = [ref.name for ref in refs if ref.kind == "Pod"], is_in_progress(observed.status)
    await _emit(cluster, key, observed, action_events((), deleted, in_rollout=in_rollout))


async def _write(cluster: Cluster, key: Key, observed: Observed, made: Plan) -> None:
    """Emits events, then writes the status. If the write fails, the next pass emits the same events
    again, which increases their count. In the opposite order they could be lost."""
    await _emit(cluster, key, observed, made.events)
    if made.status is not None:
        await cluster.patch_status(key, observed.uid, made.status.to_dict())


async def _emit(cluster: Cluster, key: Key, observed: Observed, events: Iterable[Event]) -> None:
    for event in events:
        try:
            await cluster.emit(key, observed.uid, event)
        except ClusterError as error:  # events are informational: a failure must not stop the pass
            log.warning("%s: cannot emit %s: %s", key, event.reason, error)


async def _make(cluster: Cluster, key: Key, made: Plan) -> tuple[list[AdmissionFailure], list[str]]:
    """Creates the children, in the order of need. Returns the rejections, with optional children last,
    and the names of the pods that were created."""
    # Apply and create the objects that pods need.
    others = [child for child in made.create if child["kind"] != "Pod"]
    found = await _unless_rejected(made.apply, lambda child: cluster.apply(key, child))
    found += await _unless_rejected(others, lambda child: cluster.create(key, child))
    rejections = [rejection for rejection in found if not rejection.optional]
    created: list[str] = []

    async def create(pod: Manifest) -> None:
        await cluster.create(key, pod)
        created.append(pod["metadata"]["name"])

    # Create the pods without which a job does not train. What a quota refuses is then a sampler.
    learners, replay, samplers = (_of_role(made.create, role) for role in ("learner", "replay", "sampler"))
    async with cluster.creating(key.namespace):
        for some in (learners[:1], learners[1:], replay, samplers[:1]):
            if not rejections:
                rejections += await _unless_rejected(some, create)
    # Create the other samplers.
    if not rejections:
        rejections += await _unless_rejected(samplers[1:], create)
    return [*rejections, *(rejection for rejection in found if rejection.optional)], sorted(created)


def _of_role(children: Iterable[Manifest], role: str) -> list[Manifest]:
    """Returns the pods of a role, in their order."""
    pods = (child for child in children if child["kind"] == "Pod")
    return [pod for pod in pods if pod["metadata"]["labels"][LABEL_ROLE] == role]


async def _unless_rejected(
    children: Sequence[Manifest], make: Callable[[Manifest], Awaitable[None]]
) -> list[AdmissionFailure]:
    """Creates all these children. Returns the rejections, in their order."""

    async def try_one(child: Manifest) -> AdmissionFailure | None:
        try:
            await make(child)
        except (RejectedError, NameTakenError) as error:
            return parse_admission_failure(error, child, REMEDIES.get(child["kind"], ""))
        return None

    return [rejection for rejection in await _each(children, try_one) if rejection is not None]


async def _each(items: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Runs `work` on all items, with at most PARALLEL_CALLS at a time. If one fails, the others
    still run. Raises the first error afterwards."""
    slots = asyncio.Semaphore(PARALLEL_CALLS)

    async def one(item: T) -> R:
        async with slots:
            return await work(item)

    results = await asyncio.gather(*map(one, items), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
