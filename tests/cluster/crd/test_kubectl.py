"""The jobs as kubectl shows and handles them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rltraining_api.names import API_VERSION
from schema_walk import SHORTEST, Json, job, nodes
from verdicts import Server

from tests.cluster.api import Cluster, ClusterError

JOB = job(SHORTEST | {"sampler": {"replicas": 2}, "runPolicy": {"managedBy": "example.com/nobody"}}, "shown")
"""No operator touches it, should there be one."""

STATUS: Json = {
    "phase": "Running",
    "algorithm": "impala",
    "learner": {"replicas": 1, "ready": 1, "summary": "1/1"},
    "replayPods": {"replicas": 3, "ready": 3, "summary": "3/3"},
    "sampler": {
        "replicas": 2,
        "ready": 1,
        "summary": "1/2",
        "selector": "rltraining.dev/job-name=shown,rltraining.dev/role=sampler",
    },
    "restarts": 3,
    "progress": {"environmentSteps": 123_456, "meanReturn": 87.5, "stepsPerSecond": 2500.5},
}
OPEN_API_SECONDS = 30.0
"""An API server publishes a new definition a little after it has accepted it."""


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
    """On the client's side all of it has to fit into an annotation."""
    done = api_server.run("kubectl", "apply", "--dry-run=server", *how, "-f", str(definition))
    assert "rltrainingjobs.rltraining.dev" in done.stdout
    warnings = [line for line in done.stderr.splitlines() if "last-applied-configuration" not in line]
    assert not warnings
    assert definition.stat().st_size < 200_000


def test_explain_knows_every_field(api_server: Cluster, definition: Path) -> None:
    wanted = {tuple(step for step in node.path[1:] if step != 0) for node in nodes()} - {()}

    def explained() -> bool:
        return set(_fields(api_server.kubectl("explain", "rltrainingjob.spec", "--recursive"))) == wanted

    _eventually(explained)


def test_every_field_that_the_server_publishes_is_described(api_server: Cluster, definition: Path) -> None:
    def described() -> bool:
        published = json.loads(api_server.kubectl("get", "--raw", f"/openapi/v3/apis/{API_VERSION}"))
        schema = published["components"]["schemas"]["dev.rltraining.v1alpha1.RLTrainingJob"]["properties"]
        found = {part: dict(_descriptions(schema[part], part)) for part in ("spec", "status")}
        silent = [path for part in found.values() for path, text in part.items() if not text]
        assert not silent, silent
        return set(found["spec"]) == {
            node.name.replace("[0]", "[]") for node in nodes() if node.path[-1] != 0
        }

    _eventually(described)


def test_explain_says_what_a_field_means(api_server: Cluster, definition: Path) -> None:
    said = " ".join(api_server.kubectl("explain", "rlj.spec.stop.meanReturn.episodes").split())
    assert "FIELD: episodes <integer>" in said
    assert "Newest training episodes over which the mean goes" in said


@pytest.mark.parametrize(
    ("wide", "columns"),
    [
        (
            (),
            {
                **{"NAME": "shown", "PHASE": "Running", "ALGORITHM": "impala"},
                **{"LEARNERS": "1/1", "SAMPLERS": "1/2", "STEPS": "123456", "RETURN": "87.5"},
            },
        ),
        (("-o", "wide"), {"REPLAYS": "3/3", "RESTARTS": "3", "STEPS/S": "2500.5"}),
    ],
)
def test_columns(
    api_server: Cluster, namespace: str, shown: str, wide: tuple[str, ...], columns: dict[str, str]
) -> None:
    heads, cells = (
        line.split() for line in api_server.kubectl("get", "rlj", "-n", namespace, *wide).splitlines()
    )
    row = dict(zip(heads, cells, strict=True))
    assert {head: row.get(head) for head in columns} == columns
    assert row["AGE"].endswith("s")
    assert ("RESTARTS" in row) == bool(wide)


def test_jobs_are_among_all_that_a_namespace_holds(api_server: Cluster, namespace: str, shown: str) -> None:
    assert "rltrainingjob.rltraining.dev/shown" in api_server.kubectl(
        "get", "all", "-n", namespace, "-o", "name"
    )


def test_scaling_changes_the_samplers_alone(
    api_server: Cluster, namespace: str, server: Server, shown: str
) -> None:
    before = server.request("GET", shown)["spec"]
    api_server.kubectl("scale", "rlj/shown", "--replicas=4", "-n", namespace)
    after = server.request("GET", shown)["spec"]
    assert after == before | {"sampler": before["sampler"] | {"replicas": 4}}
    for wrong, sentence in (("0", "greater than or equal to 1"), ("10001", "less than or equal to 10000")):
        with pytest.raises(ClusterError, match=f"spec.sampler.replicas.*{sentence}"):
            api_server.kubectl("scale", "rlj/shown", f"--replicas={wrong}", "-n", namespace)


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


def _fields(explained: str) -> Iterator[tuple[str, ...]]:
    """The paths in the output of `kubectl explain --recursive`: a field a line, two spaces deeper than its owner."""
    path: list[str] = []
    for line in explained.partition("FIELDS:\n")[2].splitlines():
        name, tab, _ = line.partition("\t")
        if tab:
            depth = (len(name) - len(name.lstrip())) // 2 - 1
            path = [*path[:depth], name.strip()]
            yield tuple(path)


def _descriptions(schema: Json, path: str) -> Iterator[tuple[str, str]]:
    """The description of each field of a published schema; items of lists have none."""
    if not path.endswith("[]"):
        yield path, schema.get("description", "")
    for key, child in schema.get("properties", {}).items():
        yield from _descriptions(child, f"{path}.{key}")
    if "items" in schema:
        yield from _descriptions(schema["items"], f"{path}[]")


def _eventually(holds: Callable[[], bool]) -> None:
    """Wait until it does."""
    end = time.monotonic() + OPEN_API_SECONDS
    while not holds():
        assert time.monotonic() < end, f"it did not come to hold within {OPEN_API_SECONDS:.0f} s"
        time.sleep(0.2)
