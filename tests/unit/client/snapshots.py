"""A job, and snapshots of the job for the displays."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rltraining.snapshot import Snapshot
from rltraining_api.manifest import load_manifest
from rltraining_api.status import Condition, Progress, Status

MANIFEST = """
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {name: cartpole}
spec:
  algorithm: {impala: {}}
  environment: {id: CartPole-v1}
  sampler: {replicas: 2}
  stop: {environmentSteps: 2000000, meanReturn: {atLeast: 475}}
"""
PROGRESS = {
    "environment_steps": 412_160,
    "steps_per_second": 251_412.0,
    "mean_return": 213.44,
    "policy_lag": 2.04,
    "updates": 201,
}


JOB = load_manifest(MANIFEST)


def snapshot(phase: str = "Running", progress: Mapping[str, Any] = {}, **fields: Any) -> Snapshot:
    """Returns a snapshot of the job with these fields of the snapshot and of its status."""
    of_status = {name: fields.pop(name) for name in list(fields) if name in Status.model_fields}
    status = Status(phase=phase, progress=Progress(**progress), **of_status)
    job = JOB.model_copy(update={"status": status})
    return Snapshot(job=job, **{"elapsed": 3.2, **fields})


def condition(type: str, message: str = "", status: str = "True", reason: str = "Because") -> Condition:
    """Returns a condition that has just changed."""
    now = datetime.now(UTC)
    return Condition(type=type, status=status, reason=reason, message=message, last_transition_time=now)
