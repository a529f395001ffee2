"""Decides which of several releases of the operator runs the jobs of a namespace: the one with the oldest
Lease.

The jobs name the releases that have written their status (see rivals.py). The chart lets every service
account read the Lease of its release. The Lease shows since when there is this release, whether it works,
and which namespaces it serves. If a Lease cannot be read, `Rivals` judges its release. `helm uninstall`
removes the right to read it: then a release that was known from its Lease, and does not write any more,
is gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rltraining_operator.errors import ClusterError, UnavailableError
from rltraining_operator.kube.api import Api
from rltraining_operator.kube.lease import Lease, namespaces_of
from rltraining_operator.kube.paths import item
from rltraining_operator.kube.rivals import PREFIX

CLOCKS_SECONDS = 60.0
"""How far the clocks of two nodes may differ. At first sight a Lease that was renewed longer ago is not held
by a working operator."""
OTHERS_SECONDS = 10.0
"""Interval in seconds at which the Leases of releases that do not stop this one are read."""

log = logging.getLogger(__name__)


@dataclass
class _Release:
    """Another release, as its Lease shows it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    looked: float = float("-inf")
    """When its Lease was read, in monotonic seconds."""
    written: str = ""
    """Time of its last write of a status."""
    readable: bool = False
    created: str = ""
    namespaces: frozenset[str] = frozenset()
    """Empty: all."""
    version: str = ""
    changed: float = float("-inf")
    """When the Lease was observed to change."""
    seconds: float = 0.0
    """Time without a change after which it no longer works."""
    wrote: float = float("-inf")
    """When a new write of a status was observed."""
    live: bool = False

    def note_unreadable(self) -> None:
        """Lets the last known Lease expire. A release that writes a status after that works without it."""
        end = self.changed + self.seconds
        self.live = time.monotonic() <= end
        self.readable = self.readable and self.wrote <= end

    def serves(self, namespace: str) -> bool:
        """Returns whether it works and serves this namespace."""
        return self.readable and self.live and (not self.namespaces or namespace in self.namespaces)


@dataclass(frozen=True)
class Serving:
    """The releases that serve a namespace, as their names."""

    others: tuple[str, ...] = ()
    """Working releases besides this one."""
    oldest: str = ""
    """The release that runs the jobs, if there are several. Empty: this one."""
    readable: frozenset[str] = frozenset()
    """Field managers of all releases with a Lease that can be read."""


class Releases:
    """The other releases of this cluster, and whether this one leaves its jobs to one of them."""

    def __init__(
        self,
        api: Api,
        lease: Lease,
        manager: str,
        *,
        namespaces: Iterable[str] = (),
        lease_seconds: float = 10.0,
        retry_seconds: float = 2.0,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when this release may run jobs that it left to another one, or the reverse."""
        self._api, self._lease, self._manager, self._changed = api, lease, manager, changed
        self._namespaces = frozenset(namespaces)
        self._lease_seconds, self._retry_seconds = lease_seconds, retry_seconds
        self._others: dict[str, _Release] = {}
        self._older: dict[str, str] = {}
        """Field managers of the releases to which this one leaves jobs, and the sentence about each."""

    @property
    def refusal(self) -> str:
        """Why this operator does not reconcile jobs that it should serve, or an empty string."""
        return "; ".join(self._older.values())

    async def run(self) -> None:
        """Reads the Leases of known releases until cancelled. Called while this replica leads."""
        try:
            while True:
                await asyncio.sleep(self._retry_seconds)
                for manager, other in list(self._others.items()):
                    pause = self._retry_seconds / 2 if manager in self._older else OTHERS_SECONDS
                    with suppress(UnavailableError):
                        await self._look(manager, other, pause)
        finally:
            self._older.clear()
            self._others.clear()

    async def discover(self, managers: Iterable[str]) -> None:
        """Reads the Leases of releases that are not known yet. Raises `UnavailableError`: then it is not
        known which release runs their jobs."""
        for manager in managers:
            if manager != self._manager:
                other = self._others.setdefault(manager, _Release())
                await self._look(manager, other, float("inf"))

    async def serving(self, namespace: str, writers: Mapping[str, str]) -> Serving:
        """Returns the releases that serve a namespace. `writers` are the operators that have written the
        status of one of its jobs, with the time of their last write."""
        if not self._lease.created:  # without a Lease, no release is older
            return Serving()
        await self.discover(writers)
        for manager, when in writers.items():
            other = self._others.get(manager)
            if other is not None and when > other.written:
                other.written, other.wrote = when, time.monotonic()
                if manager not in self._older:  # it may be back
                    await self._look(manager, other, self._retry_seconds)
        others = {manager: other for manager, other in self._others.items() if other.serves(namespace)}
        older = [(other.created, manager) for manager, other in others.items() if self._is_older(manager)]
        readable = frozenset(manager for manager, other in self._others.items() if other.readable)
        oldest = min(older)[1] if older else ""
        return Serving(tuple(map(_name, others)), _name(oldest), readable)

    def _is_older(self, manager: str) -> bool:
        return (self._others[manager].created, manager) < (self._lease.created, self._manager)

    async def _look(self, manager: str, other: _Release, pause: float) -> None:
        """Reads the Lease of a release, unless it was read within `pause` seconds."""
        async with other.lock:
            if time.monotonic() - other.looked < pause:
                return
            namespace, _, name = _name(manager).partition("/")
            try:
                found = await self._api.get(item("Lease", namespace, name))
            except UnavailableError:
                if other.looked == float("-inf"):
                    raise
                other.changed = max(other.changed, time.monotonic())  # it could not renew the Lease either
                return
            except ClusterError as error:  # no right to read it, or no such Lease
                log.debug("the Lease of %s cannot be read: %s", _name(manager), error)
                other.note_unreadable()
            else:
                self._note(other, found)
            other.looked = time.monotonic()
            self._decide(manager, other)

    def _note(self, other: _Release, lease: Mapping[str, Any]) -> None:
        """Updates the known state of a release from its Lease."""
        metadata, spec, now = lease["metadata"], lease.get("spec") or {}, time.monotonic()
        if metadata["resourceVersion"] != other.version:
            if other.version or _age(spec.get("renewTime")) < CLOCKS_SECONDS:
                other.changed = now
            other.version = metadata["resourceVersion"]
        namespaces = namespaces_of(metadata)
        other.readable, other.namespaces = namespaces is not None, namespaces or frozenset()
        other.created = metadata.get("creationTimestamp") or ""
        other.seconds = max(self._lease_seconds, float(spec.get("leaseDurationSeconds") or 0))
        other.live = now - other.changed <= other.seconds

    def _decide(self, manager: str, other: _Release) -> None:
        """Leaves jobs to an older release, or takes them over when it is gone."""
        shared = self._shared(other)
        works = other.readable and other.live and bool(shared)
        older = works and bool(self._lease.created) and self._is_older(manager)
        sentence = (
            f"the older release {_name(manager)} also serves {shared}: this operator reconciles no job there. "
            "Uninstall one of the two, or give each release its own watchNamespaces"
        )
        if older and self._older.get(manager) != sentence:
            self._older[manager] = sentence
            log.error("%s", sentence)
            self._changed()
        elif not older and self._older.pop(manager, ""):
            log.warning(
                "the release %s no longer serves jobs of this operator, which takes over", _name(manager)
            )
            self._changed()

    def _shared(self, other: _Release) -> str:
        """Describes the namespaces that both serve. Empty: none."""
        if not other.namespaces and not self._namespaces:
            return "all namespaces"
        both = other.namespaces & self._namespaces if other.namespaces and self._namespaces else None
        shared = sorted(other.namespaces | self._namespaces if both is None else both)
        return f"namespace {', '.join(shared)}" if shared else ""


def _name(manager: str) -> str:
    return manager.removeprefix(PREFIX)


def _age(renewed: str | None) -> float:
    """Returns the seconds since a time, by the clocks of two nodes."""
    if not renewed:
        return float("inf")
    return abs((datetime.now(UTC) - datetime.fromisoformat(renewed)).total_seconds())
