"""The jobs as kubectl shows and handles them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from random_jobs import SHORTEST, job
from verdicts import Json, Server

from tests.cluster.api import Cluster

JOB = job(SHORTEST | {"sampler": {"replicas": 2}, "runPolicy": {"managedBy": "example.com/absent"}}, "shown")
"""A job that no operator touches."""

STATUS: Json = {
    "sampler": {"replicas": 2, "selector": "rltraining.dev/job-name=shown,rltraining.dev/role=sampler"},
    "restarts": 3,
}


@pytest.fixture
def shown(server: Server) -> Iterator[str]:
    """The path of a job with a status."""
    path = f"{server.jobs}/{JOB['metadata']['name']}"
    made = server.request("POST", server.jobs, JOB)
    assert made["kind"] == "RLTrainingJob", made
    server.request("PATCH", f"{path}/status", {"status": STATUS}, patch="merge")
    yield path
    server.request("DELETE", path)


@pytest.mark.parametrize(
    "how", [(), ("--server-side", "--force-conflicts")], ids=["client-side", "server-side"]
)
def test_the_definition_applies(api_server: Cluster, definition: Path, how: tuple[str, ...]) -> None:
    """A client-side apply stores the whole definition in an annotation, which has a size limit."""
    done = api_server.run("kubectl", "apply", "--dry-run=server", *how, "-f", str(definition))
    assert "rltrainingjobs.rltraining.dev" in done.stdout
    warnings = [line for line in done.stderr.splitlines() if "last-applied-configuration" not in line]
    assert not warnings
    assert definition.stat().st_size < 200_000
    assert yaml.safe_load(definition.read_text())["spec"]["names"]["categories"] == ["all"]


def test_scaling_changes_the_samplers_alone(
    api_server: Cluster, namespace: str, server: Server, shown: str
) -> None:
    before = server.request("GET", shown)["spec"]
    api_server.kubectl("scale", "rlj/shown", "--replicas=4", "-n", namespace)
    after = server.request("GET", shown)["spec"]
    assert after == before | {"sampler": before["sampler"] | {"replicas": 4}}


def test_an_autoscaler_sees_replicas_and_whose_pods_they_are(server: Server, shown: str) -> None:
    scale = server.request("GET", f"{shown}/scale")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 2, "selector": STATUS["sampler"]["selector"]}


def test_spec_and_status_are_written_apart(server: Server, shown: str) -> None:
    before = server.request("GET", shown)
    both = {"spec": {"sampler": {"replicas": 9}}, "status": {"restarts": 9}}
    after = server.request("PATCH", f"{shown}/status", both, patch="merge")
    assert after["spec"] == before["spec"]
    assert after["status"] == before["status"] | {"restarts": 9}
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    again = server.request(
        "PATCH", shown, {"spec": {"stop": {"seconds": 5}}, "status": {"restarts": 1}}, patch="merge"
    )
    assert again["status"] == after["status"]
    assert again["metadata"]["generation"] == before["metadata"]["generation"] + 1


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        (("create",), True),
        (("apply", "--server-side"), True),
        # The effect that docs/defaults.md warns about.
        (("apply",), False),
    ],
    ids=["create", "server-side apply", "client-side apply"],
)
def test_a_null_reaches_the_trainer_except_by_client_side_apply(
    api_server: Cluster, namespace: str, server: Server, how: tuple[str, ...], kept: bool
) -> None:
    made = job(SHORTEST | {"environment": {"id": "CartPole-v1", "normalize": None}}, "with-null")
    made["spec"]["runPolicy"] = {"managedBy": "example.com/absent"}
    api_server.kubectl(*how, "-f", "-", "-n", namespace, stdin=json.dumps(made))
    path = f"{server.jobs}/with-null"
    stored = server.request("GET", path)["spec"]["environment"]
    server.request("DELETE", path)
    assert ("normalize" in stored) == kept


MISSPELT = JOB | {"spec": JOB["spec"] | {"stop": {"second": 60}}}
PATCH = ("patch", "rlj/shown", "--type=merge", '--patch={"spec": {"stop": {"second": 60}}}')


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("apply", "-f", "-"), 'unknown field "spec.stop.second"'),
        (("apply", "--server-side", "-f", "-"), ".spec.stop.second: field not declared in schema"),
        ((*PATCH, "--dry-run=server", "--warnings-as-errors"), 'unknown field "spec.stop.second"'),
    ],
    ids=["apply", "server-side apply", "dry run of a patch"],
)
def test_a_misspelt_field_is_rejected(
    api_server: Cluster, namespace: str, server: Server, shown: str, command: tuple[str, ...], words: str
) -> None:
    """As docs/clusters.md describes."""
    before = server.request("GET", shown)
    done = api_server.run("kubectl", *command, "-n", namespace, stdin=json.dumps(MISSPELT), check=False)
    assert done.returncode == 1
    assert words in done.stderr
    assert server.request("GET", shown) == before


def test_an_edit_with_a_misspelt_field_is_cancelled(
    api_server: Cluster, namespace: str, server: Server, shown: str
) -> None:
    before = server.request("GET", shown)
    editor = r"KUBE_EDITOR=sed -i 's/^\( *\)environmentSteps:/\1second: 60\n&/'"
    done = api_server.run("env", editor, "kubectl", "edit", "rlj/shown", "-n", namespace, check=False)
    assert done.returncode == 1
    assert '"shown" is invalid' in done.stderr
    assert "Edit cancelled, no valid changes were saved" in done.stderr
    assert server.request("GET", shown) == before


def test_a_patch_drops_a_misspelt_field_with_a_warning(
    api_server: Cluster, namespace: str, server: Server, shown: str
) -> None:
    before = server.request("GET", shown)
    done = api_server.run("kubectl", *PATCH, "-n", namespace)
    assert 'Warning: unknown field "spec.stop.second"' in done.stderr
    assert server.request("GET", shown)["spec"] == before["spec"]
