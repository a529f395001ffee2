"""Decides which pods to create and to delete. Pure: the same pods at the same time give the same
actions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from rltraining_api.contract import TRAINER_CONTAINER, LearnerReport
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import ROLES, Role

from rltraining_operator.failures import Death, parse_termination_message
from rltraining_operator.observed import Observed, Pod
from rltraining_operator.settings import LOST_SECONDS, REMAKE_SECONDS

_PAUSE = timedelta(seconds=REMAKE_SECONDS)


@dataclass(frozen=True)
class Moves:
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


def last_words(pod: Pod) -> LearnerReport | None:
    """Returns the report in the termination message of a trainer that does not run now, or None."""
    container = pod.container(TRAINER_CONTAINER)
    if container is None or container.running:
        return None
    end = container.terminated or container.last_terminated
    words = parse_termination_message(end.message) if end else None
    return words.report if words else None


def known_steps(observed: Observed) -> int:
    """Returns the number of environment steps so far. The report of the first learner takes
    precedence over the status."""
    steps = observed.status.progress.environment_steps
    report = report_of_first_learner(observed)
    return max(steps, report.progress.environment_steps) if report and report.state != "Starting" else steps


def report_of_first_learner(observed: Observed) -> LearnerReport | None:
    """Returns the current or last report of the first learner, or None."""
    pod = observed.first_learner
    return observed.report or (last_words(pod) if pod else None)


def silent_end(pod: Pod, observed: Observed, now: datetime) -> Death | None:
    """Returns the failure of a trainer that exited with code 0 and left no termination message, or
    None. Each trainer writes a message at the end of training, so user code or another program in
    the image has ended this process. Returns None if training is known to be over, since a full
    disk may have lost the message.

    Samplers and replay pods may exit before the end of training is known. Their exit is a failure
    only when they are due to be replaced.
    """
    container = pod.container(TRAINER_CONTAINER)
    end = container.terminated if container else None
    if end is None or end.exit_code != 0 or parse_termination_message(end.message) is not None:
        return None
    report = report_of_first_learner(observed)
    known = observed.status.policy_uri is not None or (report is not None and report.stop_reason is not None)
    early = pod.role != "learner" and (end.finished_at is None or now < end.finished_at + _PAUSE)
    if known or early or pod.deleting:
        return None
    return replace(Death.of_container(pod, end), note="it ended before training was over")


def is_done(pod: Pod, observed: Observed, now: datetime) -> bool:
    """Returns whether a member has exited because training is over, and not because it was asked to
    exit."""
    if not (pod.succeeded or pod.ended_well) or pod.deleting or silent_end(pod, observed, now) is not None:
        return False
    report = last_words(pod)
    return report is None or report.state == "Finished"


def bring_to_size(job: RLTrainingJob, observed: Observed, now: datetime) -> Moves:
    """Reconciles the pods of each role with the wanted number. Missing pods are created. Ended pods
    are deleted, and created again once they are gone. Surplus pods are deleted, the highest index
    first."""
    create: list[tuple[Role, int]] = []
    delete: list[Pod] = []
    due: list[datetime] = []
    for role in ROLES:
        # Delete surplus pods.
        pods = {pod.index: pod for pod in observed.role(role)}
        count = job.spec.replicas(role)
        delete += [pods[index] for index in sorted(pods, reverse=True) if index >= count]
        # Create missing pods, and replace ended pods when they are due.
        for index in range(count):
            pod = pods.get(index)
            if pod is None:
                create.append((role, index))
            elif (when := _replace_at(pod, observed, now)) is not None:
                if when <= now:
                    delete.append(pod)
                else:
                    due.append(when)
    return _moves(observed, delete, now, create=create, due=due)


def remove(observed: Observed, pods: Iterable[Pod], now: datetime) -> Moves:
    """Returns actions that delete these pods and create none."""
    return _moves(observed, pods, now)


def _waits_for_the_first(pod: Pod, observed: Observed, now: datetime) -> bool:
    """Returns whether this pod is done while the first learner still evaluates or writes its
    results.

    The first learner then reports a stop reason. A first learner that runs without one is a new
    incarnation, which resumes from a checkpoint and needs all pods. Other learners are not replaced
    before its report is requested either, unless they ended before it started.
    """
    if not is_done(pod, observed, now):
        return False
    if pod.role != "learner":
        return observed.report is not None and observed.report.stop_reason is not None
    first = observed.first_learner
    trainer = first.container(TRAINER_CONTAINER) if first else None
    began = trainer.started_at if trainer else None
    if began is None:
        return True
    if observed.report is not None:
        return observed.report.stop_reason is not None
    return pod.ended_at is not None and began < pod.ended_at


def _replace_at(pod: Pod, observed: Observed, now: datetime) -> datetime | None:
    """Returns when an ended pod should be replaced, or None if it has not ended or is not
    replaced."""
    # A sidecar would keep a pod active whose trainer has exited silently.
    if pod.active and silent_end(pod, observed, now) is None:
        return None
    if _waits_for_the_first(pod, observed, now):
        return None
    created = pod.created or datetime.min.replace(tzinfo=UTC)
    ended = pod.ended_at or created
    hasty = not pod.failed or ended - created < _PAUSE
    return ended + _PAUSE if hasty else ended


def _moves(
    observed: Observed,
    delete: Iterable[Pod],
    now: datetime,
    create: Iterable[tuple[Role, int]] = (),
    due: Iterable[datetime] = (),
) -> Moves:
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
    return Moves(tuple(create), going, tuple(force), tuple(later))
