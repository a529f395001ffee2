"""`Cluster` over a real API server: passes read from the store, writes go to the server and their answers into the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rltraining_api.contract import LearnerReport
from rltraining_api.names import KIND, LABEL_MANAGED_BY, MANAGED_BY, secret_name

from rltraining_operator.answers import BadReport
from rltraining_operator.children import covers
from rltraining_operator.cluster import Awaited, Event, Key, Manifest, Ref
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
from rltraining_operator.kube.paths import LISTED, UNLISTED, collection, item
from rltraining_operator.kube.reports import Reports
from rltraining_operator.kube.store import Store
from rltraining_operator.kube.tokens import Tokens
from rltraining_operator.observed import Observed, Pod

FIELD_MANAGER = MANAGED_BY
SELECTOR = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
"""What the operator made, in lists and watches: filtered by the server."""
LISTS_SECONDS = 2.0
"""How long a pass waits for the first lists of one namespace out of several."""
NO_SUCH_KIND = "could not find the requested resource"
"""What an API server says of a kind it does not know; any other 404 means that the namespace is gone."""

log = logging.getLogger(__name__)


class KubernetesCluster:
    """Jobs and their children in a cluster. See `Cluster` for what each method promises."""

    def __init__(
        self,
        api: Api,
        store: Store,
        events: EventWriter,
        reports: Reports,
        metrics: Metrics,
        *,
        namespaces: Sequence[str] = (),
    ) -> None:
        self._api, self._store, self._events, self._metrics = api, store, events, metrics
        self._reports = reports
        self._namespaces = tuple(namespaces) or ("",)
        self._versions: dict[Key, tuple[str, Any]] = {}
        """Of jobs in a pass: the resourceVersion and the status the pass decides by."""
        self.tokens: Tokens
        """Set before the first pass, when the operator's key is loaded."""
        self._doubted: set[Key] = set()
        """Jobs with pods that do not start, perhaps because their Secret was deleted."""
        self.pods_synced: dict[str, asyncio.Event] = {}
        """By namespace ("" is all). Passes wait for it: a pod that is not known yet would be made again."""
        self._listed = {namespace: asyncio.Event() for namespace in self._namespaces}

    async def keys(self) -> list[Key]:
        errors = []
        for namespace in self._namespaces:
            try:
                await self._resync(KIND, namespace)
                for kind in LISTED:
                    await self._resync(kind, namespace, SELECTOR)
                self._listed[namespace].set()
            except ClusterError as error:  # of one namespace, which may be gone: the others' jobs go on
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
            return None
        self._versions[key] = job["metadata"]["resourceVersion"], job.get("status")
        uid, children = job["metadata"]["uid"], self._store.children(key)
        if key not in self._doubted and any(
            child["kind"] == "Pod" and _is_owned(child, uid) for child in children
        ):
            children.append(_secret_of(key, uid))  # no pod is made before it, and Secrets cannot be read
        return Observed.of(job, children, self.tokens.of(uid))

    async def learner_report(self, pod: Pod, token: str) -> LearnerReport | BadReport | Awaited | None:
        return self._reports.newest(pod, token)

    async def create(self, key: Key, child: Manifest) -> None:
        kind = child["kind"]
        if kind == "Secret":
            await self._create_secret(key, child)
            return
        path = collection(kind, key.namespace, child["apiVersion"])
        try:
            made = await self._api.post(path, child, {"fieldManager": FIELD_MANAGER})
        except ConflictError:
            made = await self._existing(key, child)
        except NotFoundError as error:
            if NO_SUCH_KIND in str(error):
                raise RejectedError(f"this cluster has no {kind} of {child['apiVersion']}") from error
            raise
        else:
            self._metrics.created(child)
        self._store.put(kind, made)

    async def apply(self, key: Key, child: Manifest) -> None:
        kind, name = child["kind"], child["metadata"]["name"]
        if kind in UNLISTED and self._store.child(key, kind, name) is None:
            # Read first: an operator that has restarted, or doubts that it is there, writes nothing for it.
            with suppress(NotFoundError):
                self._store.put(kind, self._ours(child, await self._get(key, child)))
        found = self._store.child(key, kind, name)
        if found is None:
            await self.create(key, child)  # so that what belongs to someone else is never taken over
            return
        if covers(found, child):
            return
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
        """The resourceVersion goes along: a status that was decided by an older job, perhaps by another operator that
        does not know yet that it leads no more, is refused, and nothing is counted twice."""
        version, old = self._versions[key]
        patch = {
            "metadata": {"uid": uid, "resourceVersion": version},
            "status": merge_patch(old or {}, status),
        }
        path = f"{item(KIND, key.namespace, key.name)}/status"
        patched = await self._api.patch(path, "merge", patch, {"fieldManager": FIELD_MANAGER})
        self._versions[key] = patched["metadata"]["resourceVersion"], patched.get("status")
        algorithm = next(
            iter(patched.get("spec", {}).get("algorithm") or ()), ""
        )  # a job of before may have none
        self._metrics.status_written(old or {}, status, algorithm)
        self._store.put(KIND, patched)

    async def emit(self, key: Key, uid: str, event: Event) -> None:
        self._events.write(key, uid, event)

    async def _until_known(self, scope: str) -> None:
        """Wait for the first lists. Where there are other namespaces not for long: one whose lists cannot be had must not
        hold every worker."""
        try:
            async with asyncio.timeout(LISTS_SECONDS if len(self._namespaces) > 1 else None):
                await self._listed[scope].wait()
                if scope in self.pods_synced:
                    await self.pods_synced[scope].wait()
        except TimeoutError:
            raise UnavailableError("what jobs have is not listed yet") from None

    async def _create_secret(self, key: Key, child: Manifest) -> None:
        """One of that name is this job's, since the job's uid is in it."""
        with suppress(ConflictError):
            await self._api.post(collection("Secret", key.namespace), child, {"fieldManager": FIELD_MANAGER})
            self._metrics.created(child)
        self._doubted.discard(key)

    async def _existing(self, key: Key, child: Manifest) -> dict[str, Any]:
        """An object of that name is there: fine, if it is this job's."""
        kind, name = child["kind"], child["metadata"]["name"]
        try:
            found = self._ours(child, await self._get(key, child))
        except NotFoundError as error:
            raise ConflictError(f"{kind} {name} was there and is gone") from error
        if kind == "Pod" and (found["metadata"].get("labels") or {}).get(LABEL_MANAGED_BY) != MANAGED_BY:
            await self.delete(key, Ref(kind, name, found["metadata"]["uid"]))
            self._store.forget(key, kind, name)  # no watch reports its deletion
            raise NameTakenError(f"{kind} {name} has lost its labels and is replaced: nobody watches over it")
        return found

    async def _get(self, key: Key, child: Manifest) -> dict[str, Any]:
        name = child["metadata"]["name"]
        return await self._api.get(item(child["kind"], key.namespace, name, child["apiVersion"]))

    def _ours(self, child: Manifest, found: dict[str, Any]) -> dict[str, Any]:
        """Returns the object with a child's name if this job owns it. Raises `NameTakenError` otherwise."""
        kind, name = child["kind"], child["metadata"]["name"]
        if _is_owned(found, child["metadata"]["ownerReferences"][0]["uid"]):
            return found
        if found["metadata"].get("deletionTimestamp"):
            raise NameTakenError(f"{kind} {name} of an earlier job is still being deleted")
        raise NameTakenError(
            f"{kind} {name} exists already and is not this job's: delete it, or give the job another name"
        )

    async def _resync(self, kind: str, namespace: str, selector: str = "") -> None:
        """What the server has, and nothing else."""
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
        """Drops unlisted children of jobs with unready pods from the cache, so that they are looked up, or created,
        again. Secrets may not be listed, and few clusters have PodGroups; a missing one may keep the pods from
        starting."""
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
    """The JSON merge patch (RFC 7386) that makes `new` of `old`: what is missing from `new` is taken away."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_patch(before, value):
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = value
    return patch
