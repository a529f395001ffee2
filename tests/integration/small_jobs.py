"""Small jobs for the tests of survival."""

from __future__ import annotations

from typing import Any

from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import parse_job

SMALL: dict[str, Any] = {
    "algorithm": {
        "impala": {"unrollLength": 16, "updatesPerBatch": 1, "queueCapacity": 1, "lossReduction": "Mean"}
    },
    "environment": {"id": "PacedCartPole-v1", "numEnvs": 8},
    "network": {"mlp": {"hiddenSizes": [16]}},
    "stop": {"environmentSteps": 10**12},
    "checkpoint": {"everySeconds": 1},
}
"""Short updates, few per second, and a stop rule that is never met."""


REPLAY: dict[str, Any] = {"capacity": 20_000, "minimum": 500, "samplesPerInsert": 2.0}
"""A small memory, and a learner that does not take a whole core."""


def replay_job(
    *, replay: dict[str, Any] | None = None, changes: dict[str, Any] | None = None, **spec: Any
) -> RLTrainingJob:
    """A small job of Ape-X DQN with two samplers.

    `replay` overrides REPLAY; null means that neither side waits. `changes` overrides other settings.
    """
    settings = {
        "batchSize": 64,
        "learningRate": 1e-3,
        "optimizer": {"adam": {}},
        "parameterRefreshSteps": 16,
        "targetUpdatePeriod": 100,
        "replay": REPLAY | (replay or {}),
        **(changes or {}),
    }
    return small_job(**({"algorithm": {"dqnApex": settings}, "sampler": {"replicas": 2}} | spec))


DQN: dict[str, dict[str, Any]] = {
    "dqnApex": {},
    "dqnWithQuantiles": {"quantiles": 5},
    "dqnWithNoise": {"noisyLayers": True},
}
"""Variants of Ape-X DQN."""
WITH_REPLAY = (*DQN, "r2d2", "sac", "td3")
GRADIENTS: dict[str, dict[str, Any]] = {
    "a3c": {"rolloutLength": 16},
    "a2c": {"rolloutLength": 16},
    "ppo": {"rolloutLength": 16, "epochs": 2, "minibatches": 2},
    "ppoAtSamplers": {"rolloutLength": 16, "epochs": 2, "minibatches": 2, "gradients": "Samplers"},
}
"""Small settings of A3C, A2C and PPO, with gradients at the samplers (a3c, ppoAtSamplers) or the learner."""


def job_of(algorithm: str, **spec: Any) -> RLTrainingJob:
    """A small job of any algorithm with two samplers."""
    if algorithm == "impala":
        return small_job(**({"sampler": {"replicas": 2}} | spec))
    if algorithm == "r2d2":
        settings = {
            "batchSize": 8,
            "sequenceLength": 8,
            "burnIn": 4,
            "parameterRefreshSteps": 16,
            "replay": REPLAY,
        }
        network = {"mlp": {"hiddenSizes": [16]}, "lstm": {"hiddenSize": 16}}
        fields = {"algorithm": {"r2d2": settings}, "network": network, "sampler": {"replicas": 2}}
        return small_job(**(fields | spec))
    if algorithm in ("sac", "td3"):
        settings = {"batchSize": 64, "parameterRefreshSteps": 16, "replay": REPLAY}
        environment = {"id": "PacedPendulum-v1", "numEnvs": 8}
        fields = {"algorithm": {algorithm: settings}, "environment": environment, "sampler": {"replicas": 2}}
        return small_job(**(fields | spec))
    if algorithm in DQN:
        return replay_job(changes=DQN[algorithm], **spec)
    return gradient_job(algorithm, **spec)


def gradient_job(
    algorithm: str, *, aggregate: dict[str, Any] | None = None, gradients: str | None = None, **spec: Any
) -> RLTrainingJob:
    """A small job of an algorithm of GRADIENTS, with these settings replaced, with two samplers."""
    changes = {"aggregate": aggregate, "gradients": gradients}
    settings = GRADIENTS[algorithm] | {name: value for name, value in changes.items() if value is not None}
    name = algorithm.removesuffix("AtSamplers")
    return small_job(**({"algorithm": {name: settings}, "sampler": {"replicas": 2}} | spec))


def small_job(**spec: Any) -> RLTrainingJob:
    """A job named `demo`: SMALL with these fields replaced."""
    header = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "demo"}}
    return parse_job(header | {"spec": SMALL | spec})


def code(**modules: str) -> dict[str, Any]:
    """A ConfigMap `code` with user modules; `spec.code` of a job that uses it is CODE."""
    data = {f"{name}.py": text for name, text in modules.items()}
    return {"kind": "ConfigMap", "metadata": {"name": "code"}, "data": data}


def role_with(replicas: int = 1, **env: str) -> dict[str, Any]:
    """A role with these environment variables, for `training_program`."""
    container = {"name": "trainer", "env": [{"name": name, "value": value} for name, value in env.items()]}
    return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}


CODE = {"configMap": {"name": "code"}}
