"""A job and pictures of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from rltraining.snapshot import Snapshot
from rltraining_api.manifest import load_manifest
from rltraining_api.status import Progress, Status

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

SnapshotMaker = Callable[..., Snapshot]


@pytest.fixture
def manifest() -> str:
    return MANIFEST


@pytest.fixture
def snapshot() -> SnapshotMaker:
    """``snapshot(phase=…, progress={…}, elapsed=…, …)``"""

    def make(
        phase: str = "Running",
        message: str = "",
        restarts: int = 0,
        progress: Mapping[str, Any] = {},
        **rest: Any,
    ) -> Snapshot:
        status = Status(phase=phase, message=message, restarts=restarts, progress=Progress(**progress))
        job = load_manifest(MANIFEST).model_copy(update={"status": status})
        return Snapshot(job=job, **{"elapsed": 3.2, **rest})

    return make
