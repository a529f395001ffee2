"""A job and pictures of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import FakeApi
from fake_api_http import serving
from rltraining import RLTrainingClient
from rltraining.cluster import watch as watch_command
from rltraining.sdk.timing import Timing
from rltraining.snapshot import Snapshot
from rltraining_api.curve import CurvePoint
from rltraining_api.manifest import load_manifest
from rltraining_api.status import Condition, Progress, ReplayStatus, Status

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

FAST = Timing(connect=5, answer=5, look=0.5, first_pause=0.001, longest_pause=0.01, patience=5)

SnapshotMaker = Callable[..., Snapshot]


@pytest.fixture
def manifest() -> str:
    return MANIFEST


@pytest.fixture
def file(tmp_path: Path, manifest: str) -> Path:
    """The manifest, as a file."""
    path = tmp_path / "job.yaml"
    path.write_text(manifest)
    return path


@pytest.fixture
def snapshot() -> SnapshotMaker:
    """``snapshot(phase=…, progress={…}, elapsed=…, …)``"""

    def make(
        phase: str = "Running",
        message: str = "",
        restarts: int = 0,
        progress: Mapping[str, Any] = {},
        replay: ReplayStatus | None = None,
        curve: tuple[CurvePoint, ...] = (),
        conditions: tuple[Condition, ...] = (),
        **rest: Any,
    ) -> Snapshot:
        status = Status(
            phase=phase,
            message=message,
            restarts=restarts,
            progress=Progress(**progress),
            replay=replay,
            curve=curve,
            conditions=conditions,
        )
        job = load_manifest(MANIFEST).model_copy(update={"status": status})
        return Snapshot(job=job, **{"elapsed": 3.2, **rest})

    return make


@pytest.fixture
def fill(small_disk: Path) -> Callable[[], None]:
    """``fill()``: takes all room that is left on `small_disk`."""

    def take() -> None:
        with (small_disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)

    return take


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A fake API server that runs."""
    with serving() as api:
        yield api


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubeconfig that leads to it, and the only one that is known."""
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig_for(api.url)))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def client(kubeconfig: Path) -> RLTrainingClient:
    """Its client, which never sleeps for long."""
    return RLTrainingClient(timing=FAST)


@pytest.fixture
def job(api: FakeApi, manifest: str) -> dict[str, Any]:
    """A job that it holds, `cartpole`."""
    return api.put("rltrainingjobs", yaml.safe_load(manifest))


@pytest.fixture
def cluster(api: FakeApi, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster is known, and nobody waits longer than is needed. No thread that watches it outlives the test."""
    monkeypatch.setattr("rltraining.sdk.client.DEFAULT_TIMING", FAST)
    monkeypatch.setattr(watch_command, "PERIOD", 0.01)
    monkeypatch.setattr(watch_command, "LAST_WORDS", 0.05)
    yield
    api.break_streams()
    for thread in threading.enumerate():
        if thread.name.startswith("watch-"):
            thread.join(10)
            assert not thread.is_alive(), f"{thread.name} still watches"


def kubeconfig_for(server: str, **context: str) -> dict[str, Any]:
    """With one context, `here`."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", **context}}],
    }
