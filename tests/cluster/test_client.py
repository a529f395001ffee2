"""`rltrain` and `RLTrainingClient` against a real API server. The test plays the operator: it writes status and pods."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rltraining import (
    AccessDeniedError,
    JobExistsError,
    JobNotFoundError,
    JobRejectedError,
    RLTrainingClient,
)
from rltraining_api.crd import crd_yaml
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import CRD_NAME, KIND

from tests.cluster.api import Cluster

SPACE = f"rltraining-test-client-{os.getpid()}"
BIN = Path(sys.executable).parent
GONE = 120
"""Seconds for the garbage collector, which may have to find out about the CRD first."""
END = "2026-11-21T11:00:00Z"
pytestmark = pytest.mark.timeout(300)
MANIFEST: dict[str, Any] = {
    "apiVersion": "rltraining.dev/v1alpha1",
    "kind": "RLTrainingJob",
    "metadata": {"name": "cartpole", "labels": {"stage": "test"}},
    "spec": {
        "algorithm": {"impala": {}},
        "environment": {"id": "CartPole-v1"},
        "sampler": {"replicas": 2},
        "stop": {"environmentSteps": 2000000},
        "runPolicy": {
            "managedBy": "rltraining.dev/test"
        },  # excludes any operator in the cluster from these jobs
    },
}


@pytest.fixture(scope="module")
def cluster(api_server: Cluster) -> Iterator[Cluster]:
    """A cluster with the CRD and a separate namespace."""
    api_server.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=crd_yaml())
    api_server.await_definition(CRD_NAME, KIND)
    api_server.kubectl("create", "namespace", SPACE)
    yield api_server
    api_server.kubectl("delete", "namespace", SPACE, "--wait=false")


@pytest.fixture
def client(cluster: Cluster) -> Iterator[RLTrainingClient]:
    """A client for a namespace without jobs."""
    client = RLTrainingClient(SPACE, kubeconfig=cluster.kubeconfig)
    yield client
    for job in client.list():
        client.delete(job.metadata.name, wait=True, timeout=GONE)


@pytest.fixture
def job(client: RLTrainingClient) -> RLTrainingJob:
    return client.create(MANIFEST)


@pytest.fixture
def status(cluster: Cluster) -> Callable[..., None]:
    """``status(phase=…)`` writes a status as the operator would."""

    def write(**values: Any) -> None:
        patch = json.dumps({"status": values})
        arguments = ("--subresource=status", "--type=merge", "-p", patch)
        cluster.kubectl("-n", SPACE, "patch", "rlj", "cartpole", *arguments)

    return write


def rltrain(cluster: Cluster, *arguments: str, program: tuple[str, ...] = ("rltrain",)) -> Any:
    path = f"{BIN}{os.pathsep}{cluster.environment['PATH']}"
    return subprocess.run(
        [*program, *arguments],
        env={**cluster.environment, "PATH": path, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_job_from_its_creation_to_its_deletion(client: RLTrainingClient, cluster: Cluster) -> None:
    job = client.create(MANIFEST)
    assert job.metadata.uid
    assert job.spec.algorithm.impala is not None
    assert client.get("cartpole").spec == job.spec
    raw = client.jobs.get("cartpole")["spec"]
    assert raw["seed"] == 0, "the API server fills in defaults"
    assert [found.metadata.name for found in client.list("stage=test")] == ["cartpole"]
    assert client.list("stage=other") == []
    assert "cartpole" in [found.metadata.name for found in client.list(all_namespaces=True)]
    client.scale("cartpole", 4)
    assert client.get("cartpole").spec.sampler.replicas == 4
    assert client.suspend("cartpole").spec.run_policy.suspend
    assert not client.resume("cartpole").spec.run_policy.suspend
    assert client.create(MANIFEST, generate_name=True).metadata.name.startswith("cartpole-")
    client.delete("cartpole", wait=True, timeout=GONE)
    with pytest.raises(JobNotFoundError):
        client.get("cartpole")


def changed(**spec: Any) -> dict[str, Any]:
    return {**MANIFEST, "metadata": {"name": "other"}, "spec": {**MANIFEST["spec"], **spec}}


REFUSED = [
    (
        changed(algorithm={"impala": {}, "a2c": {}}),
        "spec.algorithm: exactly one algorithm is needed: one of a3c",
    ),
    (changed(sampler={"replicas": 0}), "spec.sampler.replicas: should be greater than or equal to 1, got 0"),
    (changed(seed="x"), "spec.seed: must be of type integer, got string"),
    (
        changed(runPolicy={"cleanPodPolicy": "Some"}),
        'spec.runPolicy.cleanPodPolicy: unsupported value "Some"',
    ),
    (changed(stop={}), "spec.stop: at least one rule is needed: environmentSteps"),
    (changed(image="x" * 2000), "spec.image: too long: may not be more than 1024 bytes"),
    (changed(sead=1), "spec.sead: is not a known field"),
    ({**MANIFEST, "metadata": {"name": "a.b"}}, "metadata.name must be lower-case letters, digits and '-'"),
]
"""Jobs that the client rejects before a request, and the start of the server's reworded message."""


def test_refusals_of_the_api_server_become_sentences(
    client: RLTrainingClient, job: RLTrainingJob, cluster: Cluster, tmp_path: Path
) -> None:
    for manifest, problem in REFUSED:
        with pytest.raises(JobRejectedError) as caught:
            client.jobs.create(manifest)
        assert any(said.startswith(problem) for said in caught.value.problems), caught.value.problems

    with pytest.raises(JobExistsError, match="job cartpole exists already in namespace"):
        client.create(MANIFEST)
    with pytest.raises(
        JobRejectedError, match=r"^spec: seed is immutable: to change it, delete the job and create it again"
    ):
        client.jobs.patch("cartpole", {"spec": {"seed": 7}})
    with pytest.raises(
        JobRejectedError, match=r"^spec\.sampler\.replicas: should be greater than or equal to 1, got 0$"
    ):
        client.scale("cartpole", 0)
    with pytest.raises(JobRejectedError, match="there is no namespace nowhere"):
        client.create(MANIFEST, "nowhere")

    token = cluster.kubectl("-n", SPACE, "create", "token", "default").strip()
    config = yaml.safe_load(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten"))
    config["users"][0]["user"] = {"token": token}
    limited = tmp_path / "kubeconfig"
    limited.write_text(yaml.safe_dump(config))
    with pytest.raises(AccessDeniedError, match=f"default may not list rltrainingjobs in namespace {SPACE}"):
        RLTrainingClient(SPACE, kubeconfig=limited).list()


def test_deleting_takes_the_pods_along(
    client: RLTrainingClient, job: RLTrainingJob, cluster: Cluster
) -> None:
    owner = {
        "apiVersion": MANIFEST["apiVersion"],
        "kind": MANIFEST["kind"],
        "name": "cartpole",
        "uid": job.metadata.uid,
        "controller": True,
    }
    labels = {
        "rltraining.dev/job-name": "cartpole",
        "rltraining.dev/role": "learner",
        "rltraining.dev/index": "0",
    }
    metadata = {
        "name": "cartpole-learner-0",
        "namespace": SPACE,
        "labels": labels,
        "ownerReferences": [owner],
    }
    held = {"containers": [{"name": "trainer", "image": "none"}], "schedulingGates": [{"name": "test/held"}]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": held})
    with pytest.raises(JobNotFoundError, match="pod cartpole-learner-0 has no log yet"):
        list(client.logs("cartpole"))
    client.delete("cartpole", wait=True, timeout=GONE)
    assert cluster.get("pods", "-n", SPACE)["items"] == []


def row(table: str) -> dict[str, str]:
    """Returns the cells of a table's only row by header, without the age."""
    heads, cells = (line.split() for line in table.splitlines())
    found = dict(zip(heads, cells, strict=True))
    assert found.pop("AGE")
    return found


def test_the_commands_show_what_kubectl_shows_and_are_found_by_it(
    cluster: Cluster, client: RLTrainingClient, status: Callable[..., None], tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(MANIFEST))
    made = rltrain(cluster, "submit", str(file), "-n", SPACE)
    assert (made.returncode, made.stdout) == (0, "rltrainingjob.rltraining.dev/cartpole created\n"), (
        made.stderr
    )
    status(
        phase="Running",
        algorithm="impala",
        learner={"summary": "1/1"},
        sampler={"summary": "2/2", "updated": 1},
        replayPods={"summary": "3/3"},
        restarts=3,
        progress={"environmentSteps": 412160, "meanReturn": 213.25, "stepsPerSecond": 2500.5},
        evaluation={"last": {"environmentSteps": 400000, "meanReturn": 250.5}},
    )
    narrow = {"NAME": "cartpole", "PHASE": "Running", "ALGORITHM": "impala", "LEARNERS": "1/1", "SAMPLERS": "2/2",
              "STEPS": "412160", "RETURN": "213.25"}  # fmt: skip
    wide = {"REPLAYS": "3/3", "UPDATED": "1", "RESTARTS": "3", "STEPS/S": "2500.5", "EVALUATION": "250.5"}
    for output, columns in (((), narrow), (("-o", "wide"), narrow | wide)):
        ours = row(rltrain(cluster, "get", "-n", SPACE, *output).stdout)
        assert row(cluster.kubectl("get", "rlj", "-n", SPACE, *output)) == ours == columns
    plugin = rltrain(cluster, "get", "-n", SPACE, "-o", "name", program=("kubectl", "rltrain"))
    assert plugin.stdout == "rltrainingjob.rltraining.dev/cartpole\n", plugin.stderr
    tab = rltrain(cluster, "-n", SPACE, "watch", "car", program=("kubectl", "__complete", "rltrain"))
    assert tab.stdout.split() == ["cartpole", ":4"], tab.stderr


def test_a_wait_survives_a_killed_api_server(
    client: RLTrainingClient, job: RLTrainingJob, status: Callable[..., None], cluster: Cluster
) -> None:
    cluster.need_local("its API server is not killed")

    def kill() -> None:
        cluster.restart("kube-apiserver", kill=True)
        status(phase="Succeeded", completionTime=END)

    killing: list[threading.Thread] = []

    def at_first(_: RLTrainingJob) -> None:
        if not killing:
            killing.append(threading.Thread(target=kill))
            killing[0].start()

    assert client.wait("cartpole", timeout=100, on_status=at_first).status.phase == "Succeeded"
    killing[0].join()
