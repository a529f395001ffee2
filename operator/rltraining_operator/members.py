"""Which pods to make and which to remove. Pure: the same pods at the same moment, the same moves."""

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
    """Pods to make and to remove now, and when the next move is due."""

    create: tuple[tuple[Role, int], ...] = ()
    delete: tuple[Pod, ...] = ()
    force: tuple[Pod, ...] = ()
    """Deleted long ago and still there: their node is lost."""
    due: tuple[datetime, ...] = ()

    def staying(self, observed: Observed, role: Role) -> tuple[Pod, ...]:
        """The pods of a role that exist and are not on their way out."""
        leaving = {pod.uid for pod in self.delete}
        return tuple(pod for pod in observed.role(role) if not pod.deleting and pod.uid not in leaving)


def last_words(pod: Pod) -> LearnerReport | None:
    """The report in the termination message of a trainer that is not running now."""
    container = pod.container(TRAINER_CONTAINER)
    if container is None or container.running:
        return None
    end = container.terminated or container.last_terminated
    words = parse_termination_message(end.message) if end else None
    return words.report if words else None


def known_steps(observed: Observed) -> int:
    """Environment steps so far, as far as is known: what the first learner says goes before what is written."""
    steps = observed.status.progress.environment_steps
    report = report_of_first_learner(observed)
    return max(steps, report.progress.environment_steps) if report and report.state != "Starting" else steps


def report_of_first_learner(observed: Observed) -> LearnerReport | None:
    """What it says, or said last."""
    pod = observed.first_learner
    return observed.report or (last_words(pod) if pod else None)


def silent_end(pod: Pod, observed: Observed, now: datetime) -> Death | None:
    """The end, with code 0, of a trainer that has left no word: when training is over, each says so. User code, or another
    program in the image, has ended the process; unless training is known to be over, and a full disk took the last words.

    Samplers and replay pods may end before it is known: theirs is one only when they are to be replaced.
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
    """Whether a member has ended because training is over, not because somebody asked it to end."""
    if not (pod.succeeded or pod.ended_well) or pod.deleting or silent_end(pod, observed, now) is not None:
        return False
    report = last_words(pod)
    return report is None or report.state == "Finished"


def bring_to_size(job: RLTrainingJob, observed: Observed, now: datetime) -> Moves:
    """One pod per index and role: missing ones are made, ended ones removed (and made again once they are gone),
    those beyond the wanted number removed, the highest index first."""
    create: list[tuple[Role, int]] = []
    delete: list[Pod] = []
    due: list[datetime] = []
    for role in ROLES:
        pods = {pod.index: pod for pod in observed.role(role)}
        count = job.spec.replicas(role)
        delete += [pods[index] for index in sorted(pods, reverse=True) if index >= count]
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
    """Make nothing, remove these."""
    return _moves(observed, pods, now)


def _waits_for_the_first(pod: Pod, observed: Observed, now: datetime) -> bool:
    """Whether it is a learner for which training is over, while the first one still writes what is to be left.

    The first one then reports why it stops. One that runs and does not is another incarnation, which goes on from a
    checkpoint, and needs all others. While it is not asked, it is known for another if it began after the other's end.
    """
    if pod.role != "learner" or not is_done(pod, observed, now):
        return False
    first = observed.first_learner
    trainer = first.container(TRAINER_CONTAINER) if first else None
    began = trainer.started_at if trainer else None
    if began is None:
        return True
    if observed.report is not None:
        return observed.report.stop_reason is not None
    return pod.ended_at is not None and began < pod.ended_at


def _replace_at(pod: Pod, observed: Observed, now: datetime) -> datetime | None:
    """When a pod that has ended is to be replaced; None: it has not, or is not to be."""
    if pod.active and silent_end(pod, observed, now) is None:  # else a sidecar would go on for ever
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
