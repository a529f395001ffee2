"""Detects other operators that serve the same jobs.

Each release writes statuses with its own field manager. Therefore `metadata.managedFields` of a job
names the operators that have written its status, with the time of their last write. An operator that
was replaced leaves such an entry, too. Only an operator that writes again, after this one has begun to
serve the job, is a rival. If a release's Lease can be read, releases.py judges it instead.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rltraining_api.names import MANAGED_BY

from rltraining_operator.cluster import Key

PREFIX = f"{MANAGED_BY}/"
MANAGER_CHARACTERS_MAX = 128
"""Length of a field manager. The API server rejects longer ones."""
LAST_SECONDS, LAST_WRITES = 120.0, 5
"""A rival that has not written for this time, while this operator has written a status this number of
times, is gone."""
IDLE_SECONDS = 3600.0
"""A rival that has not written for this time is gone, though no operator had anything to write."""

log = logging.getLogger(__name__)


def status_manager(namespace: str, lease: str) -> str:
    """Returns the field manager with which a release writes statuses. All replicas of a release share
    its Lease."""
    manager = f"{PREFIX}{namespace}/{lease}"
    if len(manager) <= MANAGER_CHARACTERS_MAX:
        return manager
    digest = hashlib.sha256(manager.encode()).hexdigest()[:8]
    return f"{manager[: MANAGER_CHARACTERS_MAX - 9]}-{digest}"


def status_writers(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Returns the operators that have written a job's status, with the time of their last write."""
    return {
        entry["manager"]: entry.get("time") or ""
        for entry in metadata.get("managedFields") or ()
        if entry.get("subresource") == "status" and (entry.get("manager") or "").startswith(PREFIX)
    }


@dataclass
class _Rival:
    at: float
    """When its last write was observed, in monotonic seconds."""
    writes_since: int = 0
    """Number of this operator's writes since then."""

    def is_gone(self, now: float) -> bool:
        age = now - self.at
        return (age >= LAST_SECONDS and self.writes_since >= LAST_WRITES) or age >= IDLE_SECONDS


@dataclass
class _Job:
    uid: str
    writers: Mapping[str, str]
    """The status writers at the last pass."""
    begun: _Rival
    """This operator's first pass, or the last write of a suspect. Until a rival would be gone, it is not
    known that there is none."""
    written: bool = False
    """Whether this operator has written the status."""
    suspects: set[str] = field(default_factory=set)
    """Operators with one write after the first pass. It may have been under way at a hand-over."""
    rivals: dict[str, _Rival] = field(default_factory=dict)


class Rivals:
    """The other operators that serve each job."""

    def __init__(self, manager: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._manager, self._clock = manager, clock
        self._jobs: dict[Key, _Job] = {}
        self._logged: set[str] = set()

    def observe(
        self, key: Key, uid: str, writers: Mapping[str, str], known: Collection[str] = ()
    ) -> tuple[str, ...] | None:
        """Returns the names of all operators that serve the job, this one included, sorted, or an empty
        tuple if there is no other. Returns None as long as that is not known. All of these operators
        arrive at the same names, so that their reports are equal. `known` are field managers that do not
        count, because more is known about them."""
        now = self._clock()
        job = self._jobs.get(key)
        if job is None or job.uid != uid:
            job = self._jobs[key] = _Job(uid, writers, _Rival(now))
        # Find operators that have written since the last pass.
        for manager, when in writers.items():
            if manager not in (self._manager, *known) and job.writers.get(manager) != when:
                self._note(key, job, manager, now)
        job.writers = writers
        # Drop operators that no longer write.
        job.rivals = {
            manager: rival
            for manager, rival in job.rivals.items()
            if manager not in known and not rival.is_gone(now)
        }
        if job.rivals:
            return tuple(sorted(manager.removeprefix(PREFIX) for manager in (self._manager, *job.rivals)))
        return () if job.begun.is_gone(now) else None

    def wrote(self, key: Key) -> None:
        """Records that this operator has written the status of a job."""
        if (job := self._jobs.get(key)) is not None:
            job.written = True
            for each in (job.begun, *job.rivals.values()):
                each.writes_since += 1

    def forget(self, key: Key) -> None:
        """Drops a job that is gone."""
        self._jobs.pop(key, None)

    def _note(self, key: Key, job: _Job, manager: str, now: float) -> None:
        if not job.written and manager not in job.suspects:
            job.suspects.add(manager)
            job.begun = _Rival(now)
            return
        job.rivals[manager] = _Rival(now)
        if manager not in self._logged:
            self._logged.add(manager)
            log.warning("%s: another operator, %s, also serves this job", key, manager.removeprefix(PREFIX))
