"""Derives the events of a pass from the change of the status. Each change causes one event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rltraining_api.status import Condition, Status

from rltraining_operator.cluster import Event
from rltraining_operator.failures.pod_failure import FailureKind
from rltraining_operator.status.blocked import EVENTFUL
from rltraining_operator.status.build import StatusInputs, members_in_words

NAMED_PODS_MAX = 5


def status_events(new: Status, inputs: StatusInputs) -> tuple[Event, ...]:
    """Returns the events of a pass before it acts."""
    old, unreadable = inputs.observed.status, inputs.observed.unreadable
    problems = [Event("Warning", "StatusUnreadable", unreadable)] if unreadable else []
    return (
        *problems,
        *_failures(inputs),
        *_transitions(old, new),
        *_scalings(old, new),
        *_warnings(old, new),
    )


def action_events(
    created: Sequence[str], deleted: Sequence[str], *, in_rollout: bool = False
) -> tuple[Event, ...]:
    """Returns the events of the actions, with the names of created pods and of pods with a
    requested deletion. The many events `in_rollout` leave room for others."""
    events = []
    if deleted:
        events.append(Event("Normal", "PodsDeleted", f"deleted {_list(deleted)}", reported=in_rollout))
    if created:
        events.append(Event("Normal", "PodsCreated", f"created {_list(created)}", reported=in_rollout))
    return tuple(events)


def _failures(inputs: StatusInputs) -> Iterator[Event]:
    for count in inputs.counts.failures:
        reason = "Disrupted" if count.kind is FailureKind.DISRUPTION else "MemberFailed"
        if count.failure.reason == "OOMKilled":
            reason = count.failure.reason
        times = f" ({count.times} times)" if count.times > 1 else ""
        yield Event("Warning", reason, count.failure.sentence + times)


def _transitions(old: Status, new: Status) -> Iterator[Event]:
    before = {condition.type: condition for condition in old.conditions}
    for condition in new.conditions:
        was = before.get(condition.type)
        if was is not None and (was.status, was.reason) == (condition.status, condition.reason):
            continue
        if condition.type == "Ready" and condition.reason in EVENTFUL:
            yield Event("Warning", condition.reason, new.message)
        elif condition.type == "ReplicaFailure" and condition.status == "True":
            yield Event("Warning", condition.reason, condition.message)
        elif (was is None or was.status != condition.status) and (event := _transition(condition, was)):
            yield event
    if new.phase == "Running" and old.phase != "Running":
        yield Event("Normal", "Running", members_in_words(new))


def _transition(condition: Condition, was: Condition | None) -> Event | None:
    match condition.type, condition.status:
        case "Suspended", "True":
            return Event("Normal", "Suspended", condition.message)
        case "Suspended", "False":
            return Event("Normal", "Resumed", "the job continues")
        case "Progressing", "False" if condition.reason == "Stalled":
            return Event("Warning", "Stalled", condition.message)
        case "Progressing", "Unknown":
            return Event("Warning", condition.reason, condition.message)
        case "OperatorConflict", "True":
            return Event("Warning", condition.reason, condition.message)
        case "CheckpointHealthy", "False":
            return Event("Warning", condition.reason, condition.message, reported=True)
        case "CheckpointHealthy", "True" if was is not None:
            message = f"checkpoints are written again: {condition.message}"
            return Event("Normal", condition.reason, message, reported=True)
        case "SamplersUpdated", _:
            return Event("Normal", condition.reason, condition.message)
        case "Complete", "True":
            return Event("Normal", "Completed", condition.message)
        case "Failed", "True":
            return Event("Warning", condition.reason, condition.message)
    return None


def _scalings(old: Status, new: Status) -> Iterator[Event]:
    was, now = old.autoscale, new.autoscale
    if was is None or now is None or (was.target, was.state) == (now.target, now.state):
        return
    message = f"from {was.target} to {now.target} samplers: {now.message}"
    yield Event("Normal", "SamplersScaled", message, reported=True)


def _warnings(old: Status, new: Status) -> Iterator[Event]:
    for warning in new.warnings:
        if warning not in old.warnings:
            reason, _, message = warning.partition(": ")
            yield Event("Warning", reason, message, reported=True)


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_PODS_MAX])
    return shown if len(names) <= NAMED_PODS_MAX else f"{shown} and {len(names) - NAMED_PODS_MAX} more"
