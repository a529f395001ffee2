"""Finds out why the volumes of a pod cannot be mounted. Pure.

The status of a pod does not name the cause, such as a ConfigMap that does not exist. The kubelet
reports the cause in a Warning event of the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rltraining_operator.observe.pod_view import Pod, parse_time
from rltraining_operator.settings import EVENTS_AFTER_SECONDS, EVENTS_INTERVAL_SECONDS

MOUNT_FAILURES = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
AFTER_MOUNT = frozenset({"Pulling", "Pulled", "Created", "Started"})
"""Reasons of events that a kubelet emits only once all volumes of the pod are mounted."""
SUMMARY = "Unable to attach or mount volumes"
"""Begins the kubelet's message that names the volumes and not the cause."""
SIMULTANEOUS = timedelta(seconds=2)
"""The kubelet retries all volumes of a pod together. The times of events are whole seconds."""
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class MountFailure:
    """Why the volumes of a pod cannot be mounted."""

    pod_uid: str
    cause: str
    """The kubelet's message, in one line."""


def first_without_volumes(pods: Iterable[Pod], now: datetime) -> Pod | None:
    """Returns the first pod that has had a node for a while without its volumes, or None."""
    return next((pod for pod in pods if (due := _first_look(pod)) is not None and due <= now), None)


def looks_due(pods: Iterable[Pod], now: datetime) -> Iterator[datetime]:
    """Yields when the events of these pods should be read, for the first time or again. The interval
    grows with time, as the kubelet's own interval between two attempts does."""
    shortest, longest = EVENTS_INTERVAL_SECONDS
    for pod in pods:
        since, first = pod.awaits_volumes_since, _first_look(pod)
        if since is None or first is None:
            continue
        waited = (now - since).total_seconds()
        again = now + timedelta(seconds=min(max(waited / 4, shortest), longest))
        yield first if now < first else again


def find_mount_failure(pod: Pod, events: Iterable[Mapping[str, Any]]) -> MountFailure | None:
    """Returns the newest mount failure among the events of a pod, or None if there is none or the
    volumes were mounted since. Prefers messages with a cause to those without."""
    # Select the failures after the last sign that the volumes are mounted.
    events = list(events)
    mounted = max((_time(event) for event in events if event.get("reason") in AFTER_MOUNT), default=NEVER)
    failures = [
        (_time(event), _clean(str(event.get("message") or ""), pod))
        for event in events
        if event.get("reason") in MOUNT_FAILURES and _time(event) > mounted
    ]
    # Take the newest. Of several volumes that fail together always name the same one.
    found = [each for each in failures if each[1] and not each[1].startswith(SUMMARY)] or failures
    newest = max((when for when, _ in found), default=NEVER)
    causes = [cause for when, cause in found if cause and newest - when <= SIMULTANEOUS]
    return MountFailure(pod.uid, min(causes)) if causes else None


def _first_look(pod: Pod) -> datetime | None:
    """Returns when the events of a pod without volumes are read for the first time. Most pods have
    their volumes by then."""
    since = pod.awaits_volumes_since
    return None if since is None else since + timedelta(seconds=EVENTS_AFTER_SECONDS)


def event_time(event: Mapping[str, Any]) -> datetime | None:
    """Returns when an event occurred last. The two APIs for events use different fields."""
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return parse_time(last or event["metadata"].get("creationTimestamp"))


def _time(event: Mapping[str, Any]) -> datetime:
    return event_time(event) or NEVER


def _clean(message: str, pod: Pod) -> str:
    """Returns a message in one line, without the pod's uid, which the paths of volumes contain."""
    return " ".join(message.split()).replace(pod.uid, "…").replace(" : ", ": ")
