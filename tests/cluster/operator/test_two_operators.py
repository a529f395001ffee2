"""Two operators, each for its namespace, on one API server. They run as processes, since no pod has to run."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from rltraining_api.names import API_VERSION, KIND

from tests.cluster.api import Cluster

CRD = Path(__file__).parents[3] / "crds" / "rltraining.dev_rltrainingjobs.yaml"
PROGRAM = Path(sys.executable).with_name("rltraining-operator")
NAMESPACES = ("team-a", "team-b")
SPEC = {
    "algorithm": {"impala": {}},
    "environment": {"id": "CartPole-v1"},
    "sampler": {"replicas": 2},
    "stop": {"environmentSteps": 1000},
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def namespaces(api_server: Cluster) -> Iterator[Cluster]:
    api_server.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    for name in NAMESPACES:
        api_server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield api_server
    api_server.kubectl("delete", "namespace", *NAMESPACES, "--wait=false")


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@contextmanager
def operator(cluster: Cluster, namespace: str, log: Path) -> Iterator[None]:
    options = ["--namespace", namespace, "--http-port", free_port(), "--no-leader-election"]
    with log.open("w") as file:
        process = subprocess.Popen([PROGRAM, *options], env=cluster.environment, stderr=file)
        try:
            yield
        finally:
            process.terminate()
            assert process.wait() == 0, log.read_text()


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


def until(holds: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + 100  # far above what any wait takes, also on a busy machine
    while not holds():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)


def test_two_operators_do_not_touch_each_others_jobs(namespaces: Cluster, tmp_path: Path) -> None:
    cluster, logs = namespaces, [tmp_path / f"{name}.log" for name in NAMESPACES]
    with ExitStack() as first:
        first.enter_context(operator(cluster, "team-a", logs[0]))
        for namespace in NAMESPACES:
            submit(cluster, namespace, "demo")
        until(lambda: len(pods(cluster, "team-a")) == 3, logs[0])
        assert pods(cluster, "team-b") == [], "the operator of team-a has made pods in team-b"
        assert "status" not in cluster.get("rlj", "demo", "-n", "team-b")
        with operator(cluster, "team-b", logs[1]):
            until(lambda: len(pods(cluster, "team-b")) == 3, logs[1])
            submit(cluster, "team-b", "second")
            until(lambda: len(pods(cluster, "team-b")) == 6, logs[1])
            assert len(pods(cluster, "team-a")) == 3
    assert "team-b" not in logs[0].read_text()
    assert "team-a" not in logs[1].read_text()


def test_an_unreachable_api_server_is_reported_without_a_traceback(
    api_server: Cluster, tmp_path: Path
) -> None:
    stranger = json.loads(api_server.kubectl("config", "view", "--raw", "-o", "json"))
    stranger["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(stranger))
    environment = api_server.environment | {"KUBECONFIG": str(kubeconfig)}
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen([PROGRAM, "--http-port", free_port()], env=environment, stderr=file)
    until(lambda: log.read_text().count("jobs cannot be listed") >= 2, log)
    assert process.poll() is None, "the operator keeps trying"
    process.terminate()
    process.wait()
    assert "Traceback" not in log.read_text()
