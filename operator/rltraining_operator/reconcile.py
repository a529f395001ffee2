"""Runs one pass over one job: observe, plan, act."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from rltraining_api.contract import LearnerReport

from rltraining_operator.answers import BadReport
from rltraining_operator.cluster import Cluster, Event, Key, Manifest
from rltraining_operator.errors import ClusterError, NameTakenError, NotFoundError, RejectedError
from rltraining_operator.observed import Observed
from rltraining_operator.plan import Plan, plan, plan_invalid
from rltraining_operator.refusals import Refusal, read_refusal
from rltraining_operator.reports import is_report_due
from rltraining_operator.settings import Settings
from rltraining_operator.story import tell_made

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
    # Request the first learner's report if it is due, and plan.
    job = observed.job
    if job is None:
        made = plan_invalid(observed, clock())
    else:
        if is_report_due(observed.status, clock(), settings):
            observed = await _with_report(cluster, observed)
        made = plan(job, observed, clock(), settings)
    try:
        refusal = None
        if job is not None and observed.status.observed_generation is None and made.create:
            # A new job: create its children before its status is written, so that one write of the
            # status covers both. No failures can be lost, because none are counted yet.
            refusal = await _make_all(cluster, key, observed, made)
            again = await cluster.observe(key)
            if again is None or again.uid != observed.uid or again.job is None:
                return 0.0  # deleted, or replaced by a job of the same name: observe again
            observed, job = _as_heard(again, observed), again.job
            made = plan(job, observed, clock(), settings)
        # Write the status, then delete and create children.
        if refusal is None:
            refusal = await _act(cluster, key, observed, made)
        if refusal is not None and job is not None:
            # Plan again to report the rejection in the status of this pass.
            status = made.status or observed.status
            observed = replace(observed, status=status, unreadable="", refusal=refusal)
            made = plan(job, observed, clock(), settings)
            await _write(cluster, key, observed, made)
    except NotFoundError:
        log.info("%s: deleted meanwhile", key)
        return None
    return made.requeue_after


async def _with_report(cluster: Cluster, observed: Observed) -> Observed:
    """Requests the report of the first learner if it runs. Returns the observation with the
    answer."""
    pod = observed.first_learner
    if pod is None or not pod.running:
        return observed
    answer = await cluster.learner_report(pod, observed.token)
    if isinstance(answer, LearnerReport):
        return replace(observed, report=answer)
    if isinstance(answer, BadReport):
        return replace(observed, bad_report=answer.problem)
    return replace(observed, awaited=answer is not None)


def _as_heard(observed: Observed, before: Observed) -> Observed:
    """Returns the observation with the first learner's answer from earlier in this pass."""
    return replace(observed, report=before.report, bad_report=before.bad_report, awaited=before.awaited)


async def _act(cluster: Cluster, key: Key, observed: Observed, made: Plan) -> Refusal | None:
    """Writes the status, then deletes and creates children. A failure must be in the status before
    the pod that shows it is deleted.

    Returns the first rejection by the cluster, if any.
    """
    await _write(cluster, key, observed, made)
    return await _make_all(cluster, key, observed, made)


async def _make_all(cluster: Cluster, key: Key, observed: Observed, made: Plan) -> Refusal | None:
    """Deletes and creates the planned children and emits events. Returns the first rejection, if
    any."""
    await _each(made.delete, lambda ref: cluster.delete(key, ref))
    refusals, created = await _make(cluster, key, made)
    deleted = [ref.name for ref in made.delete if ref.kind == "Pod"]
    await _tell(cluster, key, observed, tell_made(created, deleted))
    return refusals[0] if refusals else None


async def _write(cluster: Cluster, key: Key, observed: Observed, made: Plan) -> None:
    """Emits events, then writes the status. If the write fails, the next pass emits the same events
    again, which increases their count. In the opposite order they could be lost."""
    await _tell(cluster, key, observed, made.events)
    if made.status is not None:
        await cluster.patch_status(key, observed.uid, made.status.to_dict())


async def _tell(cluster: Cluster, key: Key, observed: Observed, events: Iterable[Event]) -> None:
    for event in events:
        try:
            await cluster.emit(key, observed.uid, event)
        except ClusterError as error:  # events are informational: a failure must not stop the pass
            log.warning("%s: cannot tell %s: %s", key, event.reason, error)


async def _make(cluster: Cluster, key: Key, made: Plan) -> tuple[list[Refusal], list[str]]:
    """Creates the children. The objects that pods need precede the pods. Returns the rejections and
    the names of the created pods."""
    # Apply and create the objects that pods need.
    others = [child for child in made.create if child["kind"] != "Pod"]
    pods = [child for child in made.create if child["kind"] == "Pod"]
    refusals = await _unless_refused(made.apply, lambda child: cluster.apply(key, child))
    refusals += await _unless_refused(others, lambda child: cluster.create(key, child))
    created: list[str] = []

    async def create(pod: Manifest) -> None:
        await cluster.create(key, pod)
        created.append(pod["metadata"]["name"])

    # Create the pods, after a rejection one pod first.
    for some in (pods[:1], pods[1:]) if made.cautious else (pods,):
        if not refusals:
            refusals += await _unless_refused(some, create)
    return refusals, sorted(created)


async def _unless_refused(
    children: Sequence[Manifest], make: Callable[[Manifest], Awaitable[None]]
) -> list[Refusal]:
    """Creates all these children. Returns the rejections, in their order."""

    async def try_one(child: Manifest) -> Refusal | None:
        try:
            await make(child)
        except (RejectedError, NameTakenError) as error:
            return read_refusal(error, child)
        return None

    return [refusal for refusal in await _each(children, try_one) if refusal is not None]


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
