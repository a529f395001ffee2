"""What the SDK raises. Each is a sentence for people; as exceptions of the command they carry its exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltraining.errors import ClientError, Exit

if TYPE_CHECKING:
    from rltraining_api.job import RLTrainingJob


class ClusterError(ClientError):
    """Something that a cluster refused, or could not do."""

    exit_code = Exit.CLUSTER


class ClusterUnreachableError(ClusterError):
    """No cluster is known, or the one that is known does not answer. Names the kubeconfig and the context."""


class AccessDeniedError(ClusterError):
    """The cluster does not know the user (401), or does not let the user do this (403)."""


class ServerError(ClusterError):
    """The API server answers, but with an error of its own (429, 5xx), and did so again when asked again."""


class NotInstalledError(ClusterError):
    """The cluster does not know the kind RLTrainingJob."""


class WaitTimeoutError(ClusterError, TimeoutError):
    """What was waited for did not come in time."""


class JobNotFoundError(ClusterError):
    """There is no such job, or no such pod of it."""

    exit_code = Exit.USAGE


class JobDeletedError(JobNotFoundError):
    """The job was deleted while it was waited for."""


class JobRejectedError(ClusterError):
    """The job, or a change of it, is not right. `problems` has the API server's own sentences, or ours; nothing was done."""

    exit_code = Exit.USAGE


class JobExistsError(JobRejectedError):
    """A job of this name is there already."""


class UnreadableJobError(ClusterError):
    """The object in the cluster is older or newer than what these models can read."""


class JobOverError(ClusterError):
    """The job ended, and what was waited for cannot come any more."""

    exit_code = Exit.FAILED

    def __init__(self, job: RLTrainingJob, *problems: str) -> None:
        self.job = job
        super().__init__(*problems)


class JobFailedError(JobOverError):
    """The job failed; `job.status` has all that is known."""
