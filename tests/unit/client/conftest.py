"""A job, a full disk, and a cluster that is a fake API server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fake_api import FAST, FakeApi, kubeconfig_for
from fake_api_http import Server, serving
from rltraining import RLTrainingClient
from rltraining.cluster import watch as watch_command
from rltraining_api.manifest import load_manifest
from rltraining_api.status import Progress
from rltraining_trainer.environments import make_environments
from rltraining_trainer.networks import build_actor_critic
from rltraining_trainer.policy import export_policy
from snapshots import MANIFEST


@pytest.fixture
def manifest() -> str:
    return MANIFEST


@pytest.fixture
def file(tmp_path: Path, manifest: str) -> Path:
    """The manifest, as a file."""
    path = tmp_path / "job.yaml"
    path.write_text(manifest)
    return path


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A running fake API server."""
    with serving() as server:
        yield server


@pytest.fixture
def api(server: Server) -> Iterator[FakeApi]:
    """A fake API without objects, served by `server`."""
    server.api = FakeApi(f"http://127.0.0.1:{server.server_port}")
    yield server.api
    server.api.break_streams()


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubeconfig for the fake API server, and the only one that the client finds."""
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kubeconfig_for(api.url)))  # JSON is YAML
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def client(kubeconfig: Path) -> RLTrainingClient:
    """The API's client, which never sleeps for long."""
    return RLTrainingClient(timing=FAST)


@pytest.fixture
def job(api: FakeApi, manifest: str) -> dict[str, Any]:
    """The job `cartpole`, stored in the API."""
    return api.put("rltrainingjobs", yaml.load(manifest, yaml.CSafeLoader))


@pytest.fixture
def cluster(api: FakeApi, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Configures a cluster with the shortest waiting times, and ends all threads that watch it."""
    monkeypatch.setattr("rltraining.sdk.client.DEFAULT_TIMING", FAST)
    monkeypatch.setattr(watch_command, "PERIOD", 0.01)
    monkeypatch.setattr(watch_command, "LAST_EVENTS_SECONDS", 0.05)
    yield
    api.break_streams()
    for thread in threading.enumerate():
        if thread.name.startswith("watch-"):
            thread.join(10)
            assert not thread.is_alive(), f"{thread.name} still watches"


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a policy that has learned nothing; its parent is the session's."""
    job = load_manifest(
        "{apiVersion: rltraining.dev/v1alpha1, kind: RLTrainingJob, metadata: {name: cartpole}, spec: {"
        "algorithm: {impala: {}}, environment: {id: CartPole-v1}, stop: {environmentSteps: 1}}}"
    )
    environments = make_environments(job.spec.environment, 1)
    spaces = (environments.single_observation_space, environments.single_action_space)
    environments.close()
    torch.manual_seed(0)
    network, _ = build_actor_critic(job.spec.network, *spaces)
    folder = tmp_path_factory.mktemp("run") / "policy"
    export_policy(folder, network, job, spaces, Progress())
    return folder
