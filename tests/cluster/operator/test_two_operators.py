"""Two operators, each for a namespace of its own, on one API server: as processes, since no pod has to run for this."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from rltraining_api.names import API_VERSION, KIND

from tests.cluster.api import Cluster

CRD = Path(__file__).parents[3] / "crds" / "rltraining.dev_rltrainingjobs.yaml"
NAMESPACES = ("team-a", "team-b")
SPEC = {
    "algorithm": {"impala": {}},
    "environment": {"id": "CartPole-v1"},
    "sampler": {"replicas": 2},
    "stop": {"environmentSteps": 1000},
}

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def namespaces(api_server: Cluster) -> Iterator[Cluster]:
    api_server.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    for name in NAMESPACES:
        api_server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield api_server
    api_server.kubectl("delete", "namespace", *NAMESPACES, "--wait=false")


@contextmanager
def operator(cluster: Cluster, namespace: str, port: int, log: Path) -> Iterator[None]:
    program = Path(sys.executable).with_name("rltraining-operator")
    options = ["--namespace", namespace, "--http-port", str(port), "--no-leader-election"]
    with log.open("w") as file:
        process = subprocess.Popen([str(program), *options], env=cluster.environment, stderr=file)
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(timeout=20) == 0, log.read_text()


def submit(cluster: Cluster, namespace: str, name: str) -> None:
    cluster.apply(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "namespace": namespace},
            "spec": SPEC,
        }
    )


def pods(cluster: Cluster, namespace: str) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in cluster.get("pods", "-n", namespace)["items"])


def until(holds: Any, log: Path, seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)


def test_two_operators_do_not_touch_each_others_jobs(namespaces: Cluster, tmp_path: Path) -> None:
    cluster, logs = namespaces, [tmp_path / f"{name}.log" for name in NAMESPACES]
    with ExitStack() as first:
        first.enter_context(operator(cluster, "team-a", 18091, logs[0]))
        for namespace in NAMESPACES:
            submit(cluster, namespace, "demo")
        until(lambda: len(pods(cluster, "team-a")) == 3, logs[0])
        assert pods(cluster, "team-b") == [], "the operator of team-a has made pods in team-b"
        assert "status" not in cluster.get("rlj", "demo", "-n", "team-b")
        with operator(cluster, "team-b", 18092, logs[1]):
            until(lambda: len(pods(cluster, "team-b")) == 3, logs[1])
            submit(cluster, "team-b", "second")
            until(lambda: len(pods(cluster, "team-b")) == 6, logs[1])
            assert len(pods(cluster, "team-a")) == 3
    assert "team-b" not in logs[0].read_text()
    assert "team-a" not in logs[1].read_text()


def test_an_api_server_that_cannot_be_reached_is_told_in_a_sentence(
    api_server: Cluster, tmp_path: Path
) -> None:
    stranger = json.loads(api_server.kubectl("config", "view", "--raw", "-o", "json"))
    stranger["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(stranger))
    program = Path(sys.executable).with_name("rltraining-operator")
    environment = api_server.environment | {"KUBECONFIG": str(kubeconfig)}
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen([str(program), "--http-port", "18093"], env=environment, stderr=file)
    until(lambda: log.read_text().count("jobs cannot be listed") >= 2, log)
    assert process.poll() is None, "it is waited for"
    process.terminate()
    process.wait(timeout=20)
    assert "Traceback" not in log.read_text()
