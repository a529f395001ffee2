"""`RLTrainingClient`: jobs in a cluster, from Python."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rltraining_api.contract import TRAINER_CONTAINER
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import Role

from rltraining.sdk import manifests, waiting
from rltraining.sdk.access import find_access
from rltraining.sdk.api import Api
from rltraining.sdk.code import with_code
from rltraining.sdk.errors import JobRejectedError
from rltraining.sdk.follower import Follower
from rltraining.sdk.jobs import Jobs
from rltraining.sdk.pod_logs import PodLog
from rltraining.sdk.timing import Timing
from rltraining.sdk.watching import ChangeType

DEFAULT_TIMING = Timing()


@dataclass(frozen=True)
class JobChange:
    """What has become of a job."""

    type: ChangeType
    job: RLTrainingJob


class RLTrainingClient:
    """Jobs of one namespace. Every method raises `ClusterError`s, whose text is for people (see `rltraining.sdk.errors`).

    One client is for one thread; `in_namespace` gives more of them.
    """

    def __init__(
        self,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        *,
        timing: Timing | None = None,
    ) -> None:
        """As kubectl finds its cluster: `kubeconfig`, else KUBECONFIG, else ~/.kube/config, else, in a pod, its service
        account; `context`, else the current one; `namespace`, else the context's.

        Raises ClusterUnreachableError when no cluster is known. The cluster itself is not asked yet.
        """
        access = find_access(context, kubeconfig)
        self.jobs = Jobs(Api(access, timing or DEFAULT_TIMING), namespace or access.namespace)
        """The same as raw objects."""
        self._namespace_given = namespace is not None

    @property
    def namespace(self) -> str:
        return self.jobs.namespace

    def in_namespace(self, namespace: str) -> RLTrainingClient:
        """The same cluster, another namespace."""
        other = object.__new__(RLTrainingClient)
        other.jobs = Jobs(self.jobs.api, namespace)
        other._namespace_given = True
        return other

    def create(
        self,
        job: manifests.Source,
        namespace: str | None = None,
        *,
        overrides: Iterable[str] = (),
        name: str | None = None,
        generate_name: bool = False,
        dry_run: bool = False,
        code: Iterable[str | os.PathLike[str]] = (),
    ) -> RLTrainingJob:
        """Create a job from a model, a manifest or the path of one, and the ConfigMaps that stand beside it in the file.
        With `dry_run` the API server only says what it would do.

        `overrides` are `path=value`, for files. `name` replaces the manifest's; with `generate_name` the API server adds
        five letters to it. The namespace is the argument's, else the manifest's, else the client's. `code` are files of
        this machine that the job can import: they go with it, in a ConfigMap that `spec.code` then names.

        Raises JobRejectedError, JobExistsError: then no job was created.
        """
        submission = manifests.prepare(job, overrides)
        manifest = manifests.renamed(submission.manifest, name=name, generate=generate_name)
        config_maps = submission.config_maps
        if files := tuple(code):
            manifest, made = with_code(manifest, files)
            config_maps += (made,)
        given = namespace or (self.namespace if self._namespace_given else None)
        if given and submission.namespace not in (None, given):
            raise JobRejectedError(
                f"metadata.namespace: is {submission.namespace}, but namespace {given} was asked for: leave one out"
            )
        jobs = Jobs(self.jobs.api, given or submission.namespace or self.namespace)
        manifest["metadata"]["namespace"] = jobs.namespace
        if config_maps and not dry_run:
            jobs.create(manifest, dry_run=True)  # nothing is left behind by a job that is refused
            for config_map in config_maps:
                jobs.apply_config_map(config_map)
        return waiting.typed(jobs.create(manifest, dry_run=dry_run))

    def get(self, name: str) -> RLTrainingJob:
        """The job as it is. Raises JobNotFoundError."""
        return waiting.typed(self.jobs.get(name))

    def list(
        self, label_selector: str | None = None, *, all_namespaces: bool = False
    ) -> builtins.list[RLTrainingJob]:
        """All jobs, or those whose labels fit: `team=vision,stage!=test`."""
        return [
            waiting.typed(job) for job in self.jobs.items(label_selector or "", everywhere=all_namespaces)
        ]

    def watch(
        self,
        name: str | None = None,
        label_selector: str | None = None,
        *,
        all_namespaces: bool = False,
        timeout: float | None = None,
    ) -> Iterator[JobChange]:
        """What is there (as ADDED), then each change, until `timeout` seconds are over or for ever.

        Survives broken connections: what was missed comes as one change.
        """
        clock = self.jobs.api.timing.clock
        watched = self.jobs.watched(name or "", label_selector or "", everywhere=all_namespaces)
        with self.jobs.told(name or ""):
            for update in watched.updates(None if timeout is None else clock() + timeout):
                for change in update.changes:
                    yield JobChange(change.type, waiting.typed(change.object))

    def wait(
        self,
        name: str,
        until: waiting.Until = waiting.FINISHED,
        timeout: float | None = None,
        on_status: waiting.OnStatus | None = None,
    ) -> RLTrainingJob:
        """The job, once it has finished, is in the phase named by `until`, or `until(job)` is true.

        `on_status(job)` is called at first and whenever the job has changed. Raises JobFailedError when the job failed
        (unless that is waited for), JobOverError when it ended otherwise, WaitTimeoutError after `timeout` seconds,
        JobDeletedError, JobNotFoundError.
        """
        return waiting.wait(self.jobs, name, until, timeout, on_status)

    def logs(
        self,
        name: str,
        role: Role = "learner",
        index: int = 0,
        *,
        follow: bool = False,
        previous: bool = False,
        container: str = TRAINER_CONTAINER,
        tail: int | None = None,
    ) -> Iterator[str]:
        """The lines that a member has written.

        With `follow` they come as they are written, also after a restart of the container or a replacement of the pod,
        until the job is over. `previous`: of the container before the newest one, and `follow` has no meaning. `tail`:
        only so many of the last lines.
        """
        log = PodLog(self.jobs, name, role, index, container)
        if follow and not previous:
            return Follower(log).lines(tail)
        return log.lines(previous=previous, tail=tail)

    def scale(self, name: str, samplers: int) -> None:
        """Change the number of samplers, also while the job runs."""
        self.jobs.scale(name, samplers)

    def suspend(self, name: str) -> RLTrainingJob:
        """Hold the job: its pods are deleted, after a last checkpoint."""
        return self._set_suspend(name, True)

    def resume(self, name: str) -> RLTrainingJob:
        """Let a suspended job go on from its newest checkpoint."""
        return self._set_suspend(name, False)

    def delete(self, name: str, *, wait: bool = False, timeout: float | None = None) -> None:
        """Delete the job with all that belongs to it; with `wait`, return when it and its pods are gone."""
        uid = self.jobs.get(name)["metadata"].get("uid", "") if wait else ""
        self.jobs.delete(name)
        if wait:
            waiting.wait_until_gone(self.jobs, name, uid, timeout)

    def _set_suspend(self, name: str, suspend: bool) -> RLTrainingJob:
        return waiting.typed(self.jobs.patch(name, {"spec": {"runPolicy": {"suspend": suspend}}}))
