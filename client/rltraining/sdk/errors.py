"""Defines the SDK's exceptions. Each has a message for users and the exit code of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltraining.errors import ClientError, Exit

if TYPE_CHECKING:
    from rltraining_api.job import RLTrainingJob


class ClusterError(ClientError):
    """A cluster has rejected or failed a request."""

    exit_code = Exit.CLUSTER


class ClusterUnreachableError(ClusterError):
    """No cluster is configured, or the configured cluster does not answer. Names the kubeconfig and
    the context."""


class AccessDeniedError(ClusterError):
    """The cluster does not know the user (401), or denies the request (403)."""


class ServerError(ClusterError):
    """The API server answers with an error (429, 5xx), also after retries."""


class NotInstalledError(ClusterError):
    """The cluster does not know the kind RLTrainingJob."""


class WaitTimeoutError(ClusterError, TimeoutError):
    """A wait has timed out."""


class JobNotFoundError(ClusterError):
    """The job, or its pod, does not exist."""

    exit_code = Exit.USAGE


class JobDeletedError(JobNotFoundError):
    """The job was deleted during a wait."""


class JobRejectedError(ClusterError):
    """The job, or a change of it, is invalid. `problems` has the messages of the API server or of
    the client. Nothing was changed."""

    exit_code = Exit.USAGE


class JobExistsError(JobRejectedError):
    """A job of this name exists."""


class UnreadableJobError(ClusterError):
    """The object in the cluster has a version that this client cannot read."""


class JobOverError(ClusterError):
    """The job ended before the condition of a wait was met."""

    exit_code = Exit.FAILED

    def __init__(self, job: RLTrainingJob, *problems: str) -> None:
        self.job = job
        super().__init__(*problems)


class JobFailedError(JobOverError):
    """The job failed. See `job.status`."""
