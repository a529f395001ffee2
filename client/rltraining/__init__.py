"""For people: the `rltrain` command, and `RLTrainingClient` for jobs in a cluster.

from rltraining import RLTrainingClient

client = RLTrainingClient()
client.create("job.yaml")
job = client.wait("cartpole", on_status=lambda job: print(job.status.phase, job.status.progress.mean_return))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltraining.sdk.client import JobChange, RLTrainingClient
    from rltraining.sdk.errors import (
        AccessDeniedError,
        ClusterError,
        ClusterUnreachableError,
        JobDeletedError,
        JobExistsError,
        JobFailedError,
        JobNotFoundError,
        JobOverError,
        JobRejectedError,
        NotInstalledError,
        ServerError,
        UnreadableJobError,
        WaitTimeoutError,
    )

__all__ = [
    "AccessDeniedError",
    "ClusterError",
    "ClusterUnreachableError",
    "JobChange",
    "JobDeletedError",
    "JobExistsError",
    "JobFailedError",
    "JobNotFoundError",
    "JobOverError",
    "JobRejectedError",
    "NotInstalledError",
    "RLTrainingClient",
    "ServerError",
    "UnreadableJobError",
    "WaitTimeoutError",
]


def __getattr__(name: str) -> Any:
    """Loaded when first used: who only wants the command waits for none of it."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    where = "errors" if name.endswith("Error") else "client"
    return getattr(import_module(f"rltraining.sdk.{where}"), name)
