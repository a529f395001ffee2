"""The events of a pass: what has turned from the old status to the new, each told once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rltraining_api.names import pod_name
from rltraining_api.status import Condition, Status

from rltraining_operator.cluster import Event
from rltraining_operator.failures import Verdict
from rltraining_operator.rollup import Decisions

NAMED_PODS_MAX = 5


def tell(old: Status, new: Status, made: Decisions, job: str) -> tuple[Event, ...]:
    """What is worth telling."""
    return (*_ends(made), *_pods(made, job), *_turns(old, new), *_warnings(old, new))


def _ends(made: Decisions) -> Iterator[Event]:
    for count in made.tally.counts:
        reason = "Disrupted" if count.verdict is Verdict.DISRUPTION else "MemberFailed"
        times = f" ({count.times} times)" if count.times > 1 else ""
        yield Event("Warning", reason, count.death.sentence + times)


def _pods(made: Decisions, job: str) -> Iterator[Event]:
    if names := [pod_name(job, role, index) for role, index in made.moves.create]:
        yield Event("Normal", "PodsCreated", f"created {_list(names)}")
    if names := [pod.name for pod in (*made.moves.delete, *made.moves.force)]:
        yield Event("Normal", "PodsDeleted", f"deleted {_list(names)}")


def _turns(old: Status, new: Status) -> Iterator[Event]:
    before = {condition.type: condition.status for condition in old.conditions}
    for condition in new.conditions:
        if condition.status != before.get(condition.type) and (event := _turn(condition)):
            yield event
    if new.phase == "Running" and old.phase != "Running":
        yield Event("Normal", "Running", f"{new.learner.summary} learners, {new.sampler.summary} samplers")


def _turn(condition: Condition) -> Event | None:
    match condition.type, condition.status:
        case "Suspended", "True":
            return Event("Normal", "Suspended", condition.message)
        case "Suspended", "False":
            return Event("Normal", "Resumed", "the job goes on")
        case "Progressing", "False" if condition.reason == "Stalled":
            return Event("Warning", "Stalled", condition.message)
        case "Complete", "True":
            return Event("Normal", "Completed", condition.message)
        case "Failed", "True":
            return Event("Warning", condition.reason, condition.message)
    return None


def _warnings(old: Status, new: Status) -> Iterator[Event]:
    for warning in new.warnings:
        if warning not in old.warnings:
            reason, _, message = warning.partition(": ")
            yield Event("Warning", reason, message)


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_PODS_MAX])
    return shown if len(names) <= NAMED_PODS_MAX else f"{shown} and {len(names) - NAMED_PODS_MAX} more"
