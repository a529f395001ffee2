"""Two operators on one API server, each for its namespace, or both for one."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from operators import CRD, PROGRAM, names, operator, submit, until

from tests.cluster.api import Cluster
from tests.free_port import free_port

NAMESPACES, SHARED = ("team-a", "team-b"), "team-c"
ALONE = "--no-leader-election"
QUIET_SECONDS = 5.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def namespaces(api_server: Cluster) -> Iterator[Cluster]:
    api_server.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    for name in (*NAMESPACES, SHARED):
        api_server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield api_server
    api_server.kubectl("delete", "namespace", *NAMESPACES, SHARED, "--wait=false")


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


def test_the_younger_of_two_operators_of_one_namespace_runs_no_job(
    namespaces: Cluster, tmp_path: Path
) -> None:
    cluster, logs = namespaces, [tmp_path / f"{name}.log" for name in ("first", "second")]
    configs = [log.with_suffix(".yaml") for log in logs]
    for config in configs:
        election = {"leaseName": config.stem, "leaseNamespace": SHARED}
        config.write_text(json.dumps({"namespaces": [SHARED], "leaderElection": election}))
    port = free_port()
    with ExitStack() as younger:
        with operator(cluster, logs[0], f"--config={configs[0]}"):
            submit(cluster, SHARED, "demo")
            until(lambda: has_status(cluster), logs[0])
            time.sleep(1.0)  # the Leases are created at different seconds
            younger.enter_context(operator(cluster, logs[1], f"--config={configs[1]}", f"--http-port={port}"))

            # The younger operator reports that it leaves the job to the older one.
            until(lambda: bool(conflict(cluster)), logs[1])
            message = (
                f"operators {SHARED}/first and {SHARED}/second serve this job, and only {SHARED}/first, "
                "the oldest of them, runs it: give each release its own watchNamespaces"
            )
            assert conflict(cluster)["message"] == message
            until(lambda: warned(cluster) == {message}, logs[1])
            refusal = f"the older release {SHARED}/first also serves namespace {SHARED}"
            assert refusal in logs[1].read_text()
            assert refusal in unready(port)

            # The older operator keeps working, and neither overwrites the other.
            submit(cluster, SHARED, "second-job")
            until(lambda: len(names(cluster, "pods", SHARED)) == 6, logs[0])
            until(lambda: is_quiet(cluster), logs[0])
            assert conflict(cluster)["message"] == message

        # When the older one is gone, the other one takes over.
        until(lambda: unready(port) == "", logs[1])
        cluster.kubectl("delete", "pod", "demo-sampler-0", "-n", SHARED, "--grace-period=0", "--force")
        until(lambda: len(names(cluster, "pods", SHARED)) == 6, logs[1])
        until(lambda: conflict(cluster).get("status") == "False", logs[1])


def has_status(cluster: Cluster) -> bool:
    """Returns whether an operator has written the status of the job."""
    return "observedGeneration" in cluster.get("rlj", "demo", "-n", SHARED).get("status", {})


def unready(port: int) -> str:
    """Returns why the operator is not ready, or an empty string."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10):
            return ""
    except urllib.error.HTTPError as error:
        return error.read().decode()


def is_quiet(cluster: Cluster) -> bool:
    """Returns whether the job is not written for a while."""
    versions = []
    for pause in (QUIET_SECONDS, 0.0):
        versions.append(cluster.get("rlj", "demo", "-n", SHARED)["metadata"]["resourceVersion"])
        time.sleep(pause)
    return versions[0] == versions[1]


def conflict(cluster: Cluster) -> dict[str, str]:
    """Returns the condition OperatorConflict of the job, or an empty dictionary."""
    conditions = cluster.get("rlj", "demo", "-n", SHARED).get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "OperatorConflict"), {})


def warned(cluster: Cluster) -> set[str]:
    """Returns the messages of the events OperatorConflict."""
    events = cluster.get("events", "-n", SHARED)["items"]
    return {event["message"] for event in events if event["reason"] == "OperatorConflict"}


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
        process = subprocess.Popen([PROGRAM, "--http-port", str(free_port())], env=environment, stderr=file)
    until(lambda: log.read_text().count("jobs cannot be listed") >= 2, log)
    assert process.poll() is None, "the operator keeps trying"
    process.terminate()
    process.wait()
    assert "Traceback" not in log.read_text()
