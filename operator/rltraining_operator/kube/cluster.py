"""Implements `Cluster` with an API server. Passes read from the cache. Writes go to the server, and
their answers update the cache."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Any

from rltraining_api.contract import LearnerReport
from rltraining_api.names import KIND, LABEL_MANAGED_BY, LABEL_ROLE, MANAGED_BY, secret_name

from rltraining_operator.cluster import Awaited, Event, Key, Manifest, Ref
from rltraining_operator.engine import utc_now
from rltraining_operator.errors import (
    ClusterError,
    ConflictError,
    NameTakenError,
    NotFoundError,
    RejectedError,
    UnavailableError,
)
from rltraining_operator.kube.api import Api
from rltraining_operator.kube.events import EventWriter
from rltraining_operator.kube.metrics import Metrics
from rltraining_operator.kube.paths import LISTED, SELECTOR, UNLISTED, collection, item
from rltraining_operator.kube.pod_events import PodEvents
from rltraining_operator.kube.releases import Releases
from rltraining_operator.kube.reports import Reports
from rltraining_operator.kube.rivals import PREFIX, Rivals
from rltraining_operator.kube.store import Store
from rltraining_operator.kube.tokens import Tokens
from rltraining_operator.observe.answers import BadReport
from rltraining_operator.observe.mounts import MountFailure
from rltraining_operator.observe.observed import Observed, Pod
from rltraining_operator.observe.stored_status import read_status
from rltraining_operator.pods.children import covers
from rltraining_operator.status.conditions import Conditions, operator_conflict

FIELD_MANAGER = MANAGED_BY
"""The field manager of children."""
LISTS_SECONDS = 2.0
"""Seconds for which a pass waits for the first lists of its namespace if there are several."""
NO_SUCH_KIND = ("could not find the requested resource", "404 page not found")
"""Parts of an API server's messages for an unknown kind. Any other 404 means that the namespace is
gone."""
STRICT = {"fieldValidation": "Strict"}
ABSENT_SECONDS = 10.0
"""Seconds for which no job asks again for a kind that the cluster does not have."""

log = logging.getLogger(__name__)


class KubernetesCluster:
    """Jobs and their children in a cluster. See `Cluster` for the contract of each method."""

    def __init__(
        self,
        api: Api,
        store: Store,
        events: EventWriter,
        reports: Reports,
        metrics: Metrics,
        *,
        namespaces: Sequence[str] = (),
        manager: str = FIELD_MANAGER,
        releases: Releases | None = None,
    ) -> None:
        """`manager` is the field manager of status writes, which differs between releases. `releases`
        decides which jobs are left to other releases. None: no job is."""
        self._api, self._store, self._events, self._metrics = api, store, events, metrics
        self._reports = reports
        self._pod_events = PodEvents(api)
        self._manager, self._rivals, self._releases = manager, Rivals(manager), releases
        self._namespaces = tuple(namespaces) or ("",)
        self._versions: dict[Key, tuple[str, Any]] = {}
        """The resourceVersion and the status on which the pass of a job is based."""
        self.tokens: Tokens
        """Set before the first pass, when the operator's key is loaded."""
        self._doubted: set[Key] = set()
        """Jobs with pods that do not start, perhaps because their Secret was deleted."""
        self.pods_synced: dict[str, asyncio.Event] = {}
        """Set when the pods of a namespace ("" is all) are listed. Passes wait for it, since they
        would create unlisted pods again."""
        self._absent: dict[tuple[str, str], float] = {}
        """When a kind of an API was found to be missing, in monotonic seconds."""
        self._creating: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._listed = {namespace: asyncio.Event() for namespace in self._namespaces}

    async def keys(self) -> list[Key]:
        errors = []
        for namespace in self._namespaces:
            try:
                await self._resync(KIND, namespace)
                await self._discover_releases()
                for kind in LISTED:
                    await self._resync(kind, namespace, SELECTOR)
                self._listed[namespace].set()
            # The namespace may be gone, and jobs in other namespaces continue.
            except ClusterError as error:
                log.warning("namespace %s: %s", namespace or "(all)", error)
                errors.append(error)
        if len(errors) == len(self._namespaces):
            raise errors[0]
        self._doubt_unlisted()
        return list(self._store.jobs())

    async def observe(self, key: Key) -> Observed | None:
        await self._until_known(key.namespace if key.namespace in self._listed else "")
        job = self._store.job(key)
        if job is None:
            self._versions.pop(key, None)
            self._doubted.discard(key)
            self._rivals.forget(key)
            return None
        self._versions[key] = job["metadata"]["resourceVersion"], job.get("status")
        uid, children = job["metadata"]["uid"], self._store.children(key)
        if key not in self._doubted and any(
            child["kind"] == "Pod" and _is_owned(child, uid) for child in children
        ):
            # Pods are created after the Secret, which cannot be read.
            children.append(_secret_of(key, uid))
        operators, runner, refused = await self._operators(key, uid)
        if refused:
            await self._report_conflict(key, job, operators, runner)
            return None
        observed = Observed.of(job, children, self.tokens.of(uid))
        return replace(observed, operators=operators, runner=runner)

    async def _operators(self, key: Key, uid: str) -> tuple[tuple[str, ...] | None, str, bool]:
        """Returns the operators that serve the job, if there are several, which of them runs it, and whether
        this one leaves the job to that one."""
        writers = self._store.status_writers(key)
        if self._releases is None:
            return self._rivals.observe(key, uid, writers), "", False
        serving = await self._releases.serving(key.namespace, writers)
        rivals = self._rivals.observe(key, uid, writers, serving.readable)
        if serving.others:
            ours = self._manager.removeprefix(PREFIX)
            operators = tuple(sorted({ours, *serving.others, *(rivals or ())}))
            return operators, serving.oldest or ours, bool(serving.oldest)
        others = writers.keys() - {self._manager}
        return () if rivals is None and others and others <= serving.readable else rivals, "", False

    async def _report_conflict(
        self, key: Key, job: Manifest, operators: tuple[str, ...] | None, runner: str
    ) -> None:
        """Reports in a condition and an Event that this operator leaves the job to an older one. Writes
        only this condition, and only if the job lacks it, because the older operator writes the status."""
        stored, metadata = job.get("status") or {}, job["metadata"]
        status, _ = read_status(stored)
        new = operator_conflict(
            Conditions(status.conditions, metadata.get("generation") or 0, utc_now()), operators, runner
        ).get("OperatorConflict")
        told = any(it.type == "OperatorConflict" and it.status == "True" for it in status.conditions)
        ended = metadata.get("deletionTimestamp") or status.completion_time
        if new is None or told or ended or status.observed_generation is None:
            return
        kept = [it for it in stored.get("conditions") or () if it.get("type") != new.type]
        patch = {
            "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "status": {"conditions": [*kept, new.to_dict()]},
        }
        path = f"{item(KIND, key.namespace, key.name)}/status"
        with suppress(NotFoundError):  # deleted meanwhile
            self._store.put(
                KIND, await self._api.patch(path, "merge", patch, {"fieldManager": self._manager})
            )
            self._events.write(key, metadata["uid"], Event("Warning", new.reason, new.message))

    async def learner_report(self, pod: Pod, token: str) -> LearnerReport | BadReport | Awaited | None:
        return self._reports.newest(pod, token)

    async def mount_failure(self, pod: Pod) -> MountFailure | None:
        return await self._pod_events.mount_failure(pod)

    def creating(self, namespace: str) -> AbstractAsyncContextManager[None]:
        return self._creating[namespace]

    async def create(self, key: Key, child: Manifest) -> None:
        kind = child["kind"]
        if kind == "Secret":
            await self._create_secret(key, child)
            return
        # Create the child, or check that an existing child of this name belongs to the job.
        path = collection(kind, key.namespace, child["apiVersion"])
        try:
            made = await self._api.post(
                path, child, {"fieldManager": FIELD_MANAGER} | self._checks(key, child)
            )
        except ConflictError:
            made = await self._existing(key, child)
        except NotFoundError as error:
            if any(part in str(error) for part in NO_SUCH_KIND):
                self._absent[kind, child["apiVersion"]] = time.monotonic()
                self._check_kind(child)
            raise
        else:
            self._metrics.created(child)
        self._store.put(kind, made)

    def _checks(self, key: Key, child: Manifest) -> dict[str, str]:
        """Lets the server reject unknown fields of a user's template, which it would drop otherwise. The check of other
        pods would only take time."""
        if child["kind"] != "Pod":
            return {}
        spec = (self._store.job(key) or {}).get("spec", {})
        written = spec.get(child["metadata"]["labels"][LABEL_ROLE]) or {}
        return STRICT if written.get("template") else {}

    async def apply(self, key: Key, child: Manifest) -> None:
        kind, name = child["kind"], child["metadata"]["name"]
        self._check_kind(child)
        if kind in UNLISTED and self._store.child(key, kind, name) is None:
            # Read it first, so that a restarted operator does not write unchanged children.
            with suppress(NotFoundError):
                self._store.put(kind, self._ours(child, await self._get(key, child)))
        found = self._store.child(key, kind, name)
        if found is None:
            await self.create(key, child)  # so that objects of other owners are never modified
            return
        if covers(found, child):
            return
        # Apply the child, and read it again in the next pass if that fails.
        path = item(kind, key.namespace, name, child["apiVersion"])
        try:
            made = await self._api.patch(
                path, "apply", child, {"fieldManager": FIELD_MANAGER, "force": "true"}
            )
        except ClusterError:
            self._store.forget(key, kind, name)
            raise
        self._store.put(kind, made)

    async def delete(self, key: Key, ref: Ref) -> None:
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if ref.uid:
            options["preconditions"] = {"uid": ref.uid}
        if ref.grace_seconds is not None:
            options["gracePeriodSeconds"] = ref.grace_seconds
        try:
            left = await self._api.delete(item(ref.kind, key.namespace, ref.name), options)
        except ConflictError:
            return
        except NotFoundError:
            self._store.forget(key, ref.kind, ref.name)
            return
        self._metrics.deleted(ref)
        if left.get("kind") == ref.kind:
            self._store.put(ref.kind, left)
        elif ref.kind not in ("Pod", KIND):
            self._store.forget(key, ref.kind, ref.name)

    async def patch_status(self, key: Key, uid: str, status: Manifest) -> None:
        """Replaces the status. The request contains the resourceVersion, so that the server rejects
        a status that is based on an older version of the job, perhaps by another operator that has
        lost the lease. Failures are therefore never counted twice."""
        version, old = self._versions[key]
        patch = {
            "metadata": {"uid": uid, "resourceVersion": version},
            "status": merge_patch(old or {}, status),
        }
        path = f"{item(KIND, key.namespace, key.name)}/status"
        patched = await self._api.patch(path, "merge", patch, {"fieldManager": self._manager})
        self._rivals.wrote(key)
        self._versions[key] = patched["metadata"]["resourceVersion"], patched.get("status")
        # A job that an older operator created may have no algorithm.
        algorithm = next(iter(patched.get("spec", {}).get("algorithm") or ()), "")
        self._metrics.status_written(old or {}, status, algorithm)
        self._store.put(KIND, patched)

    async def emit(self, key: Key, uid: str, event: Event) -> None:
        self._events.write(key, uid, event)

    async def _discover_releases(self) -> None:
        """Finds out about other releases before the first pass over one of their jobs."""
        if self._releases is not None:
            writers = (self._store.status_writers(key) for key in self._store.jobs())
            await self._releases.discover({manager for each in writers for manager in each})

    async def _until_known(self, scope: str) -> None:
        """Waits for the first lists. With several namespaces the wait is bounded, because a
        namespace that cannot be listed must not block every worker. Raises `UnavailableError`."""
        try:
            async with asyncio.timeout(LISTS_SECONDS if len(self._namespaces) > 1 else None):
                await self._listed[scope].wait()
                if scope in self.pods_synced:
                    await self.pods_synced[scope].wait()
        except TimeoutError:
            raise UnavailableError("the objects of jobs are not listed yet") from None

    def _check_kind(self, child: Manifest) -> None:
        """Raises `RejectedError` if the cluster lately had no such kind."""
        kind, version = child["kind"], child["apiVersion"]
        if time.monotonic() - self._absent.get((kind, version), float("-inf")) < ABSENT_SECONDS:
            raise RejectedError(f"this cluster has no {kind} of {version}")

    async def _create_secret(self, key: Key, child: Manifest) -> None:
        """Creates the Secret. An existing one belongs to this job, since its name contains the
        job's uid."""
        with suppress(ConflictError):
            await self._api.post(collection("Secret", key.namespace), child, {"fieldManager": FIELD_MANAGER})
            self._metrics.created(child)
        self._doubted.discard(key)

    async def _existing(self, key: Key, child: Manifest) -> dict[str, Any]:
        """Returns an existing object with the name of the child. Raises `NameTakenError` if this
        job does not own the object."""
        kind, name = child["kind"], child["metadata"]["name"]
        try:
            found = self._ours(child, await self._get(key, child))
        except NotFoundError as error:
            raise ConflictError(f"{kind} {name} was deleted in the meantime") from error
        if kind == "Pod" and (found["metadata"].get("labels") or {}).get(LABEL_MANAGED_BY) != MANAGED_BY:
            await self.delete(key, Ref(kind, name, found["metadata"]["uid"]))
            self._store.forget(key, kind, name)  # no watch reports its deletion
            raise NameTakenError(f"{kind} {name} has lost its labels and is replaced: it is not monitored")
        return found

    async def _get(self, key: Key, child: Manifest) -> dict[str, Any]:
        name = child["metadata"]["name"]
        return await self._api.get(item(child["kind"], key.namespace, name, child["apiVersion"]))

    def _ours(self, child: Manifest, found: dict[str, Any]) -> dict[str, Any]:
        """Returns the object with a child's name if this job owns it. Raises `NameTakenError`
        otherwise."""
        kind, name = child["kind"], child["metadata"]["name"]
        if _is_owned(found, child["metadata"]["ownerReferences"][0]["uid"]):
            return found
        if found["metadata"].get("deletionTimestamp"):
            raise NameTakenError(f"{kind} {name} of an earlier job is still being deleted")
        raise NameTakenError(
            f"{kind} {name} exists already and is not this job's: delete it, or give the job another name"
        )

    async def _resync(self, kind: str, namespace: str, selector: str = "") -> None:
        """Lists the objects of a kind, and makes the cache equal to the list."""
        seen: set[str] = set()
        version = ""
        async for page in self._api.pages(collection(kind, namespace), selector):
            version = version or page["metadata"]["resourceVersion"]
            for found in page["items"]:
                seen.add(found["metadata"]["uid"])
                self._store.put(kind, found)
            await asyncio.sleep(0)
        for lost in list(self._store.missing(kind, seen, version, namespace)):
            self._store.remove(kind, lost)

    def _doubt_unlisted(self) -> None:
        """Drops unlisted children of jobs with unready pods from the cache, so that they are looked
        up, or created, again. Secrets may not be listed, and few clusters have PodGroups. A missing
        one may prevent the pods from starting."""
        for key in self._store.jobs():
            children = self._store.children(key)
            pods = [Pod(child) for child in children if child["kind"] == "Pod"]
            pending = [pod for pod in pods if pod.phase == "Pending"]
            if any(pod.scheduled_at is not None for pod in pending):
                self._doubted.add(key)  # a kubelet may wait for the Secret
            for child in children if pending else ():
                if child["kind"] in UNLISTED:
                    self._store.forget(key, child["kind"], child["metadata"]["name"])


def _is_owned(child: Manifest, uid: str) -> bool:
    return any(ref["uid"] == uid for ref in child["metadata"].get("ownerReferences") or ())


def _secret_of(key: Key, uid: str) -> dict[str, Any]:
    """Returns a job's Secret without data, which records that the Secret exists."""
    owner = {"kind": KIND, "name": key.name, "uid": uid, "controller": True}
    metadata = {"name": secret_name(key.name, uid), "namespace": key.namespace, "ownerReferences": [owner]}
    return {"kind": "Secret", "metadata": metadata}


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON merge patch (RFC 7386) from `old` to `new`. Fields that are missing from
    `new` are removed."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_patch(before, value):
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = value
    return patch
