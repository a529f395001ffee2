"""Decides which pods to create and to delete. Pure: the same pods at the same time give the same
actions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rltraining_api.contract import TRAINER_CONTAINER
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import ROLES, Role

from rltraining_operator.failures.endings import exited_without_report, is_done
from rltraining_operator.observe.observed import Observed, Pod
from rltraining_operator.pods.rollout import pods_to_update
from rltraining_operator.pods.sampler_room import room_for_samplers
from rltraining_operator.settings import LOST_SECONDS, REMAKE_SECONDS

_PAUSE = timedelta(seconds=REMAKE_SECONDS)


@dataclass(frozen=True)
class PodActions:
    """Pods to create and to delete now, and when the next action is due."""

    create: tuple[tuple[Role, int], ...] = ()
    delete: tuple[Pod, ...] = ()
    force: tuple[Pod, ...] = ()
    """Pods that were deleted long ago and still exist, because their node is lost."""
    due: tuple[datetime, ...] = ()

    def staying(self, observed: Observed, role: Role) -> tuple[Pod, ...]:
        """Returns the existing pods of a role that are not being deleted."""
        leaving = {pod.uid for pod in self.delete}
        return tuple(pod for pod in observed.role(role) if not pod.deleting and pod.uid not in leaving)


def reconcile_replicas(job: RLTrainingJob, observed: Observed, now: datetime) -> PodActions:
    """Reconciles the pods of each role with the wanted number. Missing pods are created. Ended pods
    are deleted, and created again once they are gone. Surplus pods are deleted, the highest index
    first. Samplers give way to learners and replay pods without a place. Samplers of an older
    template are replaced a few at a time."""
    create: list[tuple[Role, int]] = []
    delete: list[Pod] = []
    room = room_for_samplers(job, observed, now)
    due = [room.changes_at] if room.changes_at else []
    for role in ROLES:
        # Delete surplus pods.
        pods = {pod.index: pod for pod in observed.role(role)}
        count = create_below = job.spec.replicas(role)
        if role == "sampler":
            count, create_below = room.keep, room.create_below
        delete += [pods[index] for index in sorted(pods, reverse=True) if index >= count]
        # Create missing pods, and replace ended pods when they are due.
        for index in range(count):
            pod = pods.get(index)
            if pod is None:
                create += [(role, index)] if index < create_below else []
            elif (when := _replace_at(pod, observed, now)) is not None:
                if when <= now:
                    delete.append(pod)
                else:
                    due.append(when)
    # Replace samplers of an older template.
    delete += pods_to_update(job, observed)
    return _pod_actions(observed, delete, now, create=create, due=due)


def remove(observed: Observed, pods: Iterable[Pod], now: datetime) -> PodActions:
    """Returns actions that delete these pods and create none."""
    return _pod_actions(observed, pods, now)


def _waits_for_the_first(pod: Pod, observed: Observed, now: datetime) -> bool:
    """Returns whether this pod is done while the first learner still evaluates or writes its
    results.

    The first learner then reports a stop reason. A first learner that runs without one is a new
    incarnation, which resumes from a checkpoint and needs all pods. A report from before the end of
    the pod shows neither, and a busy learner may not answer. Then the pod is replaced only if it
    ended before the first learner started.
    """
    if not is_done(pod, observed, now):
        return False
    # Rely on a report with a stop reason, or from after the end of the pod.
    report = observed.report
    if report and report.stop_reason is not None:
        return True
    if report and report.time and pod.ended_at and report.time > pod.ended_at:
        return False
    # Otherwise compare the times.
    first = observed.first_learner
    trainer = first.container(TRAINER_CONTAINER) if first else None
    began = trainer.started_at if trainer else None
    return began is None or (pod.ended_at is not None and began < pod.ended_at)


def _replace_at(pod: Pod, observed: Observed, now: datetime) -> datetime | None:
    """Returns when an ended pod should be replaced, or None if it has not ended or is not
    replaced."""
    # A sidecar would keep a pod active whose trainer has exited silently.
    if pod.active and exited_without_report(pod, observed, now) is None:
        return None
    if _waits_for_the_first(pod, observed, now):
        return None
    created = pod.created or datetime.min.replace(tzinfo=UTC)
    ended = pod.ended_at or created
    hasty = not pod.failed or ended - created < _PAUSE
    return ended + _PAUSE if hasty else ended


def _pod_actions(
    observed: Observed,
    delete: Iterable[Pod],
    now: datetime,
    create: Iterable[tuple[Role, int]] = (),
    due: Iterable[datetime] = (),
) -> PodActions:
    """Builds the actions, and adds pods that should be forced out."""
    force, later = [], list(due)
    for pod in observed.pods:
        if pod.delete_by is not None:
            when = pod.delete_by + timedelta(seconds=LOST_SECONDS)
            if when <= now:
                force.append(pod)
            else:
                later.append(when)
    going = tuple(pod for pod in delete if not pod.deleting)
    return PodActions(tuple(create), going, tuple(force), tuple(later))
