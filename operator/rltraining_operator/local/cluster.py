"""Implements `Cluster` on one machine, with objects in memory and pods as processes."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from rltraining_api.contract import LearnerReport
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import ManifestError, parse_job, read_job
from rltraining_api.names import KIND

from rltraining_operator.cluster import Awaited, Event, Key, Manifest, Ref
from rltraining_operator.errors import NotFoundError, RejectedError, UnavailableError
from rltraining_operator.local.events import EVENTS_FILE, EventLog
from rltraining_operator.local.network import HOST, Ports
from rltraining_operator.local.pod import LocalPod, left_out
from rltraining_operator.local.runtime import Runtime
from rltraining_operator.local.status_file import StatusFile
from rltraining_operator.local.store import LocalStore, merge_patch
from rltraining_operator.local.volumes import MountError, Volumes
from rltraining_operator.observe.answers import BadReport
from rltraining_operator.observe.ask import ask_learner
from rltraining_operator.observe.mounts import MountFailure
from rltraining_operator.observe.observed import Observed, Pod
from rltraining_operator.pods.children import CHILDREN, covers
from rltraining_operator.settings import UNREACHABLE_SECONDS

CHILD_KINDS = ("Pod", *{child.kind for child in CHILDREN})
PODS_FOLDER = ".pods"
ANSWER_SECONDS = 1.0
"""Time-out of a request to a learner in seconds."""
GRACE_SECONDS = 30
"""Kubernetes' default grace period of a pod."""

log = logging.getLogger(__name__)


class LocalCluster:
    """Holds one job and runs its pods as processes under `workdir`. Belongs to one event loop.

    Use it as a context manager: on exit it ends all processes in order. See
    `rltraining_operator.local`.
    """

    def __init__(self, workdir: Path, runtime: Runtime) -> None:
        self.workdir = workdir.absolute()
        self.events = EventLog(self.workdir / EVENTS_FILE)
        self._runtime = runtime
        self._store = LocalStore()
        self._ports = Ports()
        self._token = secrets.token_hex(32)
        self._pods: dict[str, LocalPod] = {}
        self._deleting: dict[str, asyncio.Task[None]] = {}
        self._subscribers: list[Callable[[Key], None]] = []
        self._answered: dict[str, float] = {}
        """When each learner last answered, by the uid of its pod, on the clock of the event loop."""
        self._key: Key | None = None
        self._closed = False
        self._status_file = StatusFile(self.workdir / "status.json")

    async def __aenter__(self) -> Self:
        (self.workdir / "logs").mkdir(parents=True, exist_ok=True)
        await self._runtime.open(self.workdir / "logs" / "runtime.log")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends every pod with its grace period, and releases all resources."""
        self._closed = True
        for name in list(self._pods):
            self._start_deleting(name, None)
        await asyncio.gather(*self._deleting.values(), return_exceptions=True)
        await self._runtime.close()
        self._ports.close()
        await self._status_file.close()
        shutil.rmtree(self.workdir / PODS_FOLDER, ignore_errors=True)

    # The operations of a user, as with kubectl.

    async def submit(self, job: RLTrainingJob) -> Key:
        """Creates the job. Raises `RejectedError` if a job exists, because a workdir belongs to one
        job."""
        if next(self._store.of_kind(KIND), None) is not None:
            raise RejectedError(f"{self.workdir} runs {self._key} already: each job needs a separate workdir")
        namespace = job.metadata.namespace or "default"
        raw = job.to_dict() | {"status": {}}
        raw["metadata"] = {"name": job.metadata.name, "namespace": namespace} | raw["metadata"]
        self._store.create(raw)
        self._key = Key(namespace, job.metadata.name)
        self._notify()
        return self._key

    def job(self, key: Key) -> RLTrainingJob:
        """Returns the job with its status. Raises `NotFoundError`."""
        return read_job(self._raw_job(key))

    def pods(self, key: Key) -> list[Pod]:
        """Returns the job's pods, learners first."""
        self._raw_job(key)
        pods = (Pod(raw) for raw in self._store.of_kind("Pod"))
        return sorted(pods, key=lambda pod: (pod.role, pod.index))

    def pid(self, pod: str) -> int | None:
        """Returns the process id of a pod, or None while it has no process."""
        running = self._pods.get(pod)
        return running.process.pid if running and running.process else None

    async def update_spec(self, key: Key, patch: Manifest) -> None:
        """Merges a patch (RFC 7396) into the job's spec. Raises `RejectedError` if the result is
        not a valid job."""
        patched = merge_patch(self._raw_job(key), {"spec": patch})
        try:
            parse_job(patched)
        except ManifestError as error:
            raise RejectedError(str(error)) from None
        if self._store.merge(KIND, key.name, {"spec": patch}):
            self._notify()

    async def delete_job(self, key: Key) -> None:
        """Deletes the job and its children. Returns when its processes have ended."""
        await self.delete(key, Ref(KIND, key.name))
        await asyncio.gather(*self._deleting.values(), return_exceptions=True)

    def put(self, manifest: Manifest) -> None:
        """Adds an object that the job uses but does not own, such as a ConfigMap with user code."""
        self._store.create(manifest)

    def subscribe(self, listener: Callable[[Key], None]) -> None:
        """Calls `listener(key)` whenever the job, its status or one of its children has changed."""
        self._subscribers.append(listener)
        if self._key is not None:
            listener(self._key)

    async def until(self, key: Key, holds: Callable[[RLTrainingJob], bool]) -> RLTrainingJob:
        """Waits until the condition has held for the job. Raises `NotFoundError` when the job is
        deleted."""
        held: asyncio.Future[RLTrainingJob] = asyncio.get_running_loop().create_future()

        def look(_: Key) -> None:
            if held.done():
                return
            try:
                if holds(job := self.job(key)):
                    held.set_result(job)
            # Raise it in the waiting task, not in the task that made the change.
            except Exception as error:
                held.set_exception(error)

        self.subscribe(look)
        try:
            look(key)
            return await held
        finally:
            self._subscribers.remove(look)

    # The operations of the engine (see `Cluster`).

    async def keys(self) -> list[Key]:
        return [self._key] if self._key else []

    async def observe(self, key: Key) -> Observed | None:
        raw = self._store.get(KIND, key.name)
        if raw is None:
            return None
        return Observed.of(raw, self._store.of_kind(*CHILD_KINDS), self._token)

    async def learner_report(self, pod: Pod, token: str) -> LearnerReport | BadReport | Awaited | None:
        answer = await ask_learner(HOST, self._ports.of(pod.name), token, ANSWER_SECONDS)
        now = asyncio.get_running_loop().time()
        if answer is not None:
            self._answered[pod.uid] = now
            return answer
        # A learner on a busy machine misses requests. In a run without progress for a minute, because its
        # environments are slow, it would be unreachable after each of them.
        lately = now - self._answered.get(pod.uid, float("-inf")) < UNREACHABLE_SECONDS
        return "awaited" if lately else None

    async def mount_failure(self, pod: Pod) -> MountFailure | None:
        return None  # a process has its volumes as folders

    def creating(self, namespace: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def create(self, key: Key, child: Manifest) -> None:
        self._raw_job(key)
        if self._closed:
            raise UnavailableError("the local cluster is closed")
        if self._store.create(child):
            if child["kind"] == "Pod":
                self._start_pod(child["metadata"]["name"])
                for sentence in left_out(child):
                    self.events.record(Event("Warning", "NotRunLocally", sentence))
            self._notify()

    async def apply(self, key: Key, child: Manifest) -> None:
        self._raw_job(key)
        kind, name = child["kind"], child["metadata"]["name"]
        if not self._store.create(child):
            if covers(self._store.get(kind, name), child):
                return
            self._store.merge(kind, name, child)
            self._refresh_volumes()
        self._notify()

    async def delete(self, key: Key, ref: Ref) -> None:
        found = self._store.get(ref.kind, ref.name)
        if found is None or (ref.uid and found["metadata"]["uid"] != ref.uid):
            return
        if ref.kind == "Pod":
            self._start_deleting(ref.name, ref.grace_seconds)
        elif ref.kind == KIND:
            self._collect(key)
        else:
            self._store.remove(ref.kind, ref.name)
        self._notify()

    async def patch_status(self, key: Key, uid: str, status: Manifest) -> None:
        if self._raw_job(key)["metadata"]["uid"] != uid:
            raise NotFoundError(f"{key} with uid {uid} is gone")
        self._store.replace_status(KIND, key.name, status)
        self._status_file.write(self._raw_job(key))
        self._notify()

    async def emit(self, key: Key, uid: str, event: Event) -> None:
        self.events.record(event)

    def _raw_job(self, key: Key) -> dict[str, Any]:
        raw = self._store.get(KIND, key.name) if key == self._key else None
        if raw is None:
            raise NotFoundError(f"there is no job {key}")
        return raw

    def _start_pod(self, name: str) -> None:
        pod = self._store.get("Pod", name)
        assert pod is not None

        def publish(status: dict[str, Any]) -> None:
            self._store.replace_status("Pod", name, status)
            self._notify()

        volumes = Volumes(pod, self.workdir / PODS_FOLDER / name, self.workdir, self._store.get)
        volumes.remove()  # remove the files of a cluster that was killed
        self._pods[name] = LocalPod(
            pod,
            runtime=self._runtime,
            volumes=volumes,
            ports=self._ports,
            workdir=self.workdir,
            publish=publish,
        )

    def _start_deleting(self, name: str, grace_seconds: float | None) -> None:
        """Marks a pod as deleted, ends it, and then removes it, as API server and kubelet do."""
        if name in self._deleting:
            return
        pod = self._store.get("Pod", name)
        assert pod is not None
        if grace_seconds is None:
            grace_seconds = pod["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)
        by = datetime.now(UTC) + timedelta(seconds=grace_seconds)
        self._store.merge("Pod", name, {"metadata": {"deletionTimestamp": by.isoformat()}})
        self._deleting[name] = asyncio.create_task(self._end_pod(name, grace_seconds))

    async def _end_pod(self, name: str, grace_seconds: float) -> None:
        await self._pods[name].stop(grace_seconds)
        del self._pods[name], self._deleting[name]
        self._store.remove("Pod", name)
        self._notify()

    def _collect(self, key: Key) -> None:
        """Deletes the job and the objects that it owns, as garbage collection does."""
        self._store.remove(KIND, key.name)
        for name in list(self._pods):
            self._start_deleting(name, None)
        for child in self._store.of_kind(*CHILD_KINDS[1:]):
            if child["metadata"].get("ownerReferences"):
                self._store.remove(child["kind"], child["metadata"]["name"])

    def _refresh_volumes(self) -> None:
        for pod in self._pods.values():
            try:
                pod.volumes.refresh()
            except (OSError, MountError) as error:
                log.warning("pod %s keeps its old files: %s", pod.name, error)

    def _notify(self) -> None:
        if self._key is None:
            return
        for listener in list(self._subscribers):
            listener(self._key)
