"""One pass over one job: observe, plan, act."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from rltraining_operator.cluster import Cluster, Event, Key, Manifest
from rltraining_operator.errors import NotFoundError, RejectedError
from rltraining_operator.observed import Observed
from rltraining_operator.plan import Plan, plan, plan_invalid
from rltraining_operator.settings import Settings

PARALLEL_CREATES = 16
Clock = Callable[[], datetime]

log = logging.getLogger(__name__)


async def reconcile(cluster: Cluster, key: Key, clock: Clock, settings: Settings) -> float | None:
    """Bring the job closer to what it asks for; returns after how many seconds to look again.

    Raises `ClusterError`. Whatever was left undone then, the next pass finds and does.
    """
    observed = await cluster.observe(key)
    if observed is None:
        return None
    job = observed.job
    if job is None:
        made = plan_invalid(observed, clock())
    else:
        observed = await _with_reports(cluster, observed)
        made = plan(job, observed, clock(), settings)
    try:
        await _act(cluster, key, observed, made)
    except NotFoundError:
        log.info("%s: deleted meanwhile", key)
        return None
    return made.requeue_after


async def _with_reports(cluster: Cluster, observed: Observed) -> Observed:
    """Ask the running learners how it goes."""
    token = observed.token
    pods = [pod for pod in observed.role("learner") if pod.running]
    if not pods or not token:
        return observed
    reports = await asyncio.gather(*(cluster.learner_report(pod, token) for pod in pods))
    said = {pod.name: report for pod, report in zip(pods, reports, strict=True) if report is not None}
    return replace(observed, reports=said)


async def _act(cluster: Cluster, key: Key, observed: Observed, made: Plan) -> None:
    """The status first: a failure must be in it before the pod that shows it is deleted.

    What the cluster refuses (a quota, a rule of its own) is told, for nothing else would say why no pod comes.
    """
    if made.status is not None:
        await cluster.patch_status(key, observed.uid, made.status.to_dict())
    for ref in made.delete:
        await cluster.delete(key, ref)
    try:
        await _make(cluster, key, made)
    except RejectedError as error:
        await cluster.emit(key, observed.uid, Event("Warning", "Rejected", str(error)))
        raise
    for event in made.events:
        await cluster.emit(key, observed.uid, event)


async def _make(cluster: Cluster, key: Key, made: Plan) -> None:
    """The children: what pods need before the pods."""
    for child in made.apply:
        await cluster.apply(key, child)
    for child in made.create:
        if child["kind"] != "Pod":
            await cluster.create(key, child)
    await _create_all(cluster, key, [child for child in made.create if child["kind"] == "Pod"])


async def _create_all(cluster: Cluster, key: Key, pods: Iterable[Manifest]) -> None:
    """In parallel, a few at a time; when one fails the others still come."""
    slots = asyncio.Semaphore(PARALLEL_CREATES)

    async def create(pod: Manifest) -> None:
        async with slots:
            await cluster.create(key, pod)

    results = await asyncio.gather(*map(create, pods), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
