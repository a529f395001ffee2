"""Implements leader election with a Lease: one replica works, and the others stand by.

Each replica measures the time since its own observation of the last change, so clocks need not be
synchronised. A leader that cannot renew stops before another replica may start, so two never work
at the same time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from rltraining_api.names import GROUP

from rltraining_operator.errors import ClusterError, ConflictError, NotFoundError
from rltraining_operator.kube.api import Api
from rltraining_operator.kube.config import LeaderElectionConfig
from rltraining_operator.kube.paths import collection, item

Json = dict[str, Any]

RELEASE_PAUSE_SECONDS = 0.1
ANNOTATION_NAMESPACES = f"{GROUP}/namespaces"
"""On a Lease: the namespaces that the release serves, separated by commas. Empty: all."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sighting:
    """The last observed change of the lease."""

    holder: str
    version: str
    at: float
    """On the clock of the observing replica, in seconds."""


def judge(
    identity: str, seen: Sighting | None, now: float, lease_seconds: float
) -> Literal["renew", "take", "wait"]:
    """Returns what a replica may do with the lease. Pure."""
    if seen is None or not seen.holder or now - seen.at > lease_seconds:
        return "take"
    return "renew" if seen.holder == identity else "wait"


def namespaces_of(metadata: Mapping[str, Any]) -> frozenset[str] | None:
    """Returns the namespaces that a release serves, by the metadata of its lease: an empty set for all, or
    None if an older version has written the lease."""
    served = (metadata.get("annotations") or {}).get(ANNOTATION_NAMESPACES)
    return None if served is None else frozenset(filter(None, served.split(",")))


class Lease:
    """The lease as held or observed by one replica."""

    def __init__(
        self,
        api: Api,
        config: LeaderElectionConfig,
        *,
        namespace: str,
        identity: str,
        serves: Sequence[str] = (),
    ) -> None:
        """`serves`: the namespaces in which the release runs jobs. Empty: all."""
        self._api, self._config = api, config
        self._annotations = {ANNOTATION_NAMESPACES: ",".join(serves)}
        self._namespace, self._identity = namespace, identity
        self._path = item("Lease", namespace, config.lease_name)
        self._seen: Sighting | None = None
        self._lease: Json = {}
        self._leads = False
        self._renewed = time.monotonic()
        """When the last successful renewal was sent."""

    @property
    def created(self) -> str:
        """When the lease was created. Empty if it was never read."""
        return str((self._lease.get("metadata") or {}).get("creationTimestamp") or "")

    async def acquire(self) -> None:
        """Waits until this replica leads."""
        self._leads, said = False, ""
        while True:
            began = time.monotonic()
            if await self._held() and time.monotonic() - began < self._config.renew_seconds:
                break  # after a slower answer the lease may have expired already
            if self._seen and self._seen.holder != said:
                said = self._seen.holder
                log.info("standing by: %s leads", said or "no replica")
            await asyncio.sleep(self._config.retry_seconds)
        self._leads, self._renewed = True, began
        log.info("%s leads now", self._identity)

    async def hold(self) -> None:
        """Renews the lease. Returns when renewals have failed for `renewSeconds` or another replica
        holds the lease. This replica must then stop working immediately."""
        while True:
            until = self._renewed + self._config.renew_seconds
            await asyncio.sleep(max(0.0, min(self._config.retry_seconds, until - time.monotonic())))
            began = time.monotonic()
            left = until - began
            try:
                async with asyncio.timeout(max(left, 0.0)):
                    held = await self._held()
            except TimeoutError:
                held = False
            if held:
                # Use the time of the request, since the server may count from then.
                self._renewed = began
            elif self._seen and self._seen.holder != self._identity:
                log.error("%s leads: another replica took the lease", self._seen.holder)
                return
            elif time.monotonic() - self._renewed >= self._config.renew_seconds:
                log.error("the lease could not be renewed for %.0f s", self._config.renew_seconds)
                return

    async def release(self) -> None:
        """Releases the lease, so that a standby can start immediately. Without an answer a standby
        starts when the lease has expired."""
        if self._seen is None or self._seen.holder != self._identity:
            return
        try:
            async with asyncio.timeout(self._config.renew_seconds):
                while not await self._released():  # noqa: ASYNC110 - nothing signals that another writer is done
                    await asyncio.sleep(RELEASE_PAUSE_SECONDS)
        except (ClusterError, TimeoutError) as error:
            log.warning("the lease could not be released: %s", error)

    async def _released(self) -> bool:
        """Releases the lease if this replica still holds it. Returns False if it has changed
        meanwhile."""
        # Read it first: the server may have carried out a renewal whose answer this replica did not
        # wait for.
        await self._look()
        if self._seen is None or self._seen.holder != self._identity:
            return True
        spec = self._lease["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._api.put(self._path, self._lease | {"spec": spec})
        except ConflictError:
            return False
        log.info("the lease is released")
        return True

    async def _held(self) -> bool:
        """Reads the lease, and takes or renews it if that is allowed. Returns whether this replica
        holds it now."""
        try:
            await self._look()
            seen = self._seen
            choice = judge(self._identity, seen, time.monotonic(), self._config.lease_seconds)
            if choice == "wait":
                return False
            self._note(await self._write())
        except ConflictError:
            return False  # another replica was faster
        except ClusterError as error:
            log.warning("leader election: %s", error)
            return False
        return True

    async def _look(self) -> None:
        try:
            self._note(await self._api.get(self._path))
        except NotFoundError:
            self._lease, self._seen = {}, None

    def _note(self, lease: Json) -> None:
        self._lease = lease
        version = lease["metadata"]["resourceVersion"]
        if self._seen is None or self._seen.version != version:
            holder = (lease.get("spec") or {}).get("holderIdentity") or ""
            self._seen = Sighting(holder, version, time.monotonic())

    async def _write(self) -> Json:
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        old = self._lease.get("spec") or {}
        changes = bool(old) and not self._leads  # also from this pod's previous process to this one
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._config.lease_seconds)),
            "renewTime": now,
            "acquireTime": now if changes else old.get("acquireTime") or now,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + changes,
        }
        if self._lease:
            metadata = self._lease["metadata"]
            metadata = metadata | {"annotations": (metadata.get("annotations") or {}) | self._annotations}
            return await self._api.put(self._path, self._lease | {"metadata": metadata, "spec": spec})
        metadata = {
            "name": self._config.lease_name,
            "namespace": self._namespace,
            "annotations": self._annotations,
        }
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        return await self._api.post(collection("Lease", self._namespace), body)
