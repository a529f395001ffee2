"""Decides which samplers give way to a learner or replay pod without a place. Pure.

A job trains only with all its learners and replay pods, so samplers that hold the room of one of
them hold it in vain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import Role, parse_pod_name

from rltraining_operator.observe.admission import QUOTA_EXCEEDED
from rltraining_operator.observe.observed import Observed
from rltraining_operator.pods import gang
from rltraining_operator.settings import GIVE_WAY_SECONDS

NEEDED: tuple[Role, ...] = ("learner", "replay")
"""Roles of which a job needs all pods."""
_PERIOD = timedelta(seconds=GIVE_WAY_SECONDS)


@dataclass(frozen=True)
class SamplerRoom:
    """How many samplers a job may have now."""

    keep: int
    """Samplers with this index and above are deleted."""
    create_below: int
    """Missing samplers with an index below this are created."""
    changes_at: datetime | None = None
    """When more samplers give way, or None."""


def room_for_samplers(job: RLTrainingJob, observed: Observed, now: datetime) -> SamplerRoom:
    """Returns the number of samplers that leave room for all learners and replay pods.

    No sampler is created while a learner or replay pod ends. The last sampler gives way to a pod
    that the quota refuses. A tenth of the samplers, at least one, gives way to a pod that has waited
    for a node, or for its queue, for `GIVE_WAY_SECONDS` while a sampler had a place, and to the same
    pod again after each further such time. The samplers that a gang scheduler requires do not give
    way to such a pod, because without them it places no pod. Nor do samplers give way to a pod
    without its volume claim.
    """
    room = _room_for_waiting_pods(job, observed, now)
    # Keep the room of a learner or replay pod that will be replaced. Once its containers have ended, it
    # no longer counts against the quota, and a new sampler would take this room before the new pod.
    if any(pod.deleting or not pod.active for role in NEEDED for pod in observed.role(role)):
        room = replace(room, create_below=0)
    if not _quota_refuses_a_needed_pod(observed):
        return room
    # Wait for the end of a sampler that already gives way. Samplers that the plan before the
    # rejection deleted are deleted by this one too.
    samplers = observed.role("sampler")
    waits = any(pod.deleting for pod in samplers)
    last = max((pod.index for pod in samplers), default=room.keep)
    return replace(room, keep=room.keep if waits else min(last, room.keep), create_below=0)


def _room_for_waiting_pods(job: RLTrainingJob, observed: Observed, now: datetime) -> SamplerRoom:
    """Returns the number of samplers that leave room for existing learners and replay pods."""
    replicas = job.spec.replicas("sampler")
    # Find out since when a pod waits.
    needed = (pod for role in NEEDED for pod in observed.role(role) if not pod.awaits_claim)
    waiting_since = min(filter(None, (pod.unscheduled_since for pod in needed)), default=None)
    if waiting_since is None:
        return SamplerRoom(replicas, replicas)
    required = gang.samplers_at_once(job)
    create_below = replicas if now < waiting_since + _PERIOD else required
    # Find out since when a sampler has had a place meanwhile.
    placed = (pod.scheduled_at for pod in observed.role("sampler") if pod.active and not pod.deleting)
    placed_since = min(filter(None, placed), default=None)
    if placed_since is None:
        return SamplerRoom(replicas, create_below)
    since = max(waiting_since, placed_since)
    # Let samplers give way.
    periods = max((now - since) // _PERIOD, 0)
    keep = max(replicas - periods * max(replicas // 10, 1), required)
    return SamplerRoom(keep, create_below, since + (periods + 1) * _PERIOD)


def _quota_refuses_a_needed_pod(observed: Observed) -> bool:
    rejection = observed.rejection
    if rejection is None or rejection.reason != QUOTA_EXCEEDED:
        return False
    member = parse_pod_name(observed.name, rejection.name)
    return member is not None and member[0] in NEEDED
