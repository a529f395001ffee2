"""The command `rltrain`, `train` for runs on this machine, and `RLTrainingClient` for jobs in a
cluster.

from rltraining import train

run = train("CartPole-v1", algorithm="ppo", environment_steps=100_000)
action = run.policy.act(observation)

from rltraining import RLTrainingClient

client = RLTrainingClient()
client.create("job.yaml")
job = client.wait("cartpole", on_status=lambda job: print(job.status.progress.mean_return))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltraining.errors import UsageError
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
    from rltraining.training import Run, train

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
    "Run",
    "ServerError",
    "UnreadableJobError",
    "UsageError",
    "WaitTimeoutError",
    "train",
]


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that the command starts fast."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    places = {"Run": "training", "train": "training", "UsageError": "errors"}
    where = places.get(name) or ("sdk.errors" if name.endswith("Error") else "sdk.client")
    return getattr(import_module(f"rltraining.{where}"), name)
