"""Defines `RLTrainingClient`, the Python interface to jobs in a cluster."""

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
    """A change of a job."""

    type: ChangeType
    job: RLTrainingJob


class RLTrainingClient:
    """Manages the jobs of one namespace. Every method raises `ClusterError`s with messages for
    users (see `rltraining.sdk.errors`).

    A client must be used by one thread. `in_namespace` creates further clients.
    """

    def __init__(
        self,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        *,
        timing: Timing | None = None,
    ) -> None:
        """Finds the cluster like kubectl: `kubeconfig`, KUBECONFIG, ~/.kube/config or, in a pod,
        its service account, in this order. The defaults are the current context and its namespace.

        Raises ClusterUnreachableError if no cluster is configured. Sends no request to the cluster.
        """
        access = find_access(context, kubeconfig)
        self.jobs = Jobs(Api(access, timing or DEFAULT_TIMING), namespace or access.namespace)
        """The jobs as raw objects."""
        self._namespace_given = namespace is not None

    @property
    def namespace(self) -> str:
        return self.jobs.namespace

    def in_namespace(self, namespace: str) -> RLTrainingClient:
        """Returns a client for another namespace of the same cluster."""
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
        """Creates a job from a model, a manifest or the path of one, with the ConfigMaps of the
        same file. With `dry_run` the API server only validates the job.

        Args:
            overrides: `path=value`, applied to a file.
            name: Replaces the manifest's name.
            generate_name: Whether the API server adds five letters to the name.
            namespace: Defaults to the manifest's, or else to the client's.
            code: Files of this machine that the job can import. They are sent in a ConfigMap, to
                which `spec.code` then refers.

        Raises JobRejectedError or JobExistsError if no job was created.
        """
        # Read and check the manifest.
        file = manifests.prepare(job, overrides)
        manifest = manifests.renamed(manifests.as_written(file.job), name=name, generate=generate_name)
        config_maps, asked = file.config_maps, file.job.metadata.namespace
        # Add user code as a ConfigMap.
        if files := tuple(code):
            manifest, made = with_code(manifest, files)
            config_maps += (made,)
        # Determine the namespace.
        given = namespace or (self.namespace if self._namespace_given else None)
        if given and asked not in (None, given):
            raise JobRejectedError(
                f"metadata.namespace: is {asked}, but namespace {given} was asked for: leave one out"
            )
        jobs = Jobs(self.jobs.api, given or asked or self.namespace)
        manifest["metadata"]["namespace"] = jobs.namespace
        # Create the ConfigMaps, then the job.
        if config_maps and not dry_run:
            jobs.create(manifest, dry_run=True)  # a rejected job must leave no ConfigMaps
            for config_map in config_maps:
                jobs.apply_config_map(config_map)
        return waiting.typed(jobs.create(manifest, dry_run=dry_run))

    def get(self, name: str) -> RLTrainingJob:
        """Returns the job. Raises JobNotFoundError."""
        return waiting.typed(self.jobs.get(name))

    def list(
        self, label_selector: str | None = None, *, all_namespaces: bool = False
    ) -> builtins.list[RLTrainingJob]:
        """Returns all jobs, or the jobs that match a label selector such as
        `team=vision,stage!=test`."""
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
        """Yields the existing jobs (as ADDED), then each change, for `timeout` seconds or forever.

        Recovers from broken connections. Missed changes are combined into one.
        """
        clock = self.jobs.api.timing.clock
        watched = self.jobs.watched(name or "", label_selector or "", everywhere=all_namespaces)
        with self.jobs.translate_errors(name or ""):
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
        """Waits until the job has finished, is in the phase `until`, or `until(job)` is true.
        Returns the job.

        `on_status(job)` is called first with the current job, and then after each change. Raises
        JobFailedError if the job failed (unless `until` is `Failed`), JobOverError if it ended
        otherwise, WaitTimeoutError after `timeout` seconds, JobDeletedError, or JobNotFoundError.
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
        """Yields the lines of a member's log.

        Args:
            follow: Whether to yield new lines, also after restarts of the container and
                replacements of the pod, until the job is over.
            previous: Whether to read the log of the previous container. Then `follow` is ignored.
            tail: Maximum number of last lines.
        """
        log = PodLog(self.jobs, name, role, index, container)
        if follow and not previous:
            return Follower(log).lines(tail)
        return log.lines(previous=previous, tail=tail)

    def scale(self, name: str, samplers: int) -> None:
        """Changes the number of samplers, also while the job runs."""
        self.jobs.scale(name, samplers)

    def suspend(self, name: str) -> RLTrainingJob:
        """Suspends the job. Its pods are deleted after a last checkpoint, which is kept only with `spec.checkpoint`."""
        return self._set_suspend(name, True)

    def resume(self, name: str) -> RLTrainingJob:
        """Resumes a suspended job, from its newest checkpoint if this was kept."""
        return self._set_suspend(name, False)

    def delete(self, name: str, *, wait: bool = False, timeout: float | None = None) -> None:
        """Deletes the job and its children. With `wait`, returns when the job and its pods are
        gone."""
        uid = self.jobs.get(name)["metadata"].get("uid", "") if wait else ""
        self.jobs.delete(name)
        if wait:
            waiting.wait_until_gone(self.jobs, name, uid, timeout)

    def _set_suspend(self, name: str, suspend: bool) -> RLTrainingJob:
        return waiting.typed(self.jobs.patch(name, {"spec": {"runPolicy": {"suspend": suspend}}}))
