"""Two operators, each for its namespace, on one API server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from operators import CRD, PROGRAM, free_port, names, operator, submit, until

from tests.cluster.api import Cluster

NAMESPACES = ("team-a", "team-b")
ALONE = "--no-leader-election"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def namespaces(api_server: Cluster) -> Iterator[Cluster]:
    api_server.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    for name in NAMESPACES:
        api_server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield api_server
    api_server.kubectl("delete", "namespace", *NAMESPACES, "--wait=false")


def test_two_operators_do_not_touch_each_others_jobs(namespaces: Cluster, tmp_path: Path) -> None:
    cluster, logs = namespaces, [tmp_path / f"{name}.log" for name in NAMESPACES]
    with ExitStack() as first:
        first.enter_context(operator(cluster, logs[0], "--namespace=team-a", ALONE))
        for namespace in NAMESPACES:
            submit(cluster, namespace, "demo")
        until(lambda: len(names(cluster, "pods", "team-a")) == 3, logs[0])
        assert names(cluster, "pods", "team-b") == [], "the operator of team-a has made pods in team-b"
        assert "status" not in cluster.get("rlj", "demo", "-n", "team-b")
        with operator(cluster, logs[1], "--namespace=team-b", ALONE):
            until(lambda: len(names(cluster, "pods", "team-b")) == 3, logs[1])
            submit(cluster, "team-b", "second")
            until(lambda: len(names(cluster, "pods", "team-b")) == 6, logs[1])
            assert len(names(cluster, "pods", "team-a")) == 3
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
