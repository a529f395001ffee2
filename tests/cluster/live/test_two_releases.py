"""A second Helm release that serves a namespace of the first one, with the permissions that the chart grants."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import Job, Team, every, example
from rltraining_api.names import GROUP, PLURAL

pytestmark = [pytest.mark.timeout(300), pytest.mark.at_once("releases")]
CHART = Path(__file__).parents[3] / "charts" / "rltraining-operator"
RELEASE = "second"
NAME = f"{RELEASE}-rltraining-operator"
"""Name of the second release's Deployment, ServiceAccount and Lease."""
READYZ = """
from urllib.error import HTTPError
from urllib.request import urlopen
try:
    print(200, urlopen("http://127.0.0.1:8080/readyz").read().decode())
except HTTPError as error:
    print(error.code, error.read().decode())
"""


def test_the_younger_of_two_overlapping_releases_leaves_a_running_job_alone(team: Team) -> None:
    """The second release serves only the namespace of this test, because other tests run at the same time."""
    with team.other("shared") as shared, team.other("second-system") as system:
        spec = example("cartpole-impala", sampler={"replicas": 1}, stop={"environmentSteps": 10**9})
        with shared.job("shared-job", spec | shared.gentle("shared-job")) as job:
            job.until_ready("1/1", "1/1")
            job.until_steps()
            uids, definition = job.uids(), _definition_uid(team)
            with _second_release(system, shared.namespace):
                # The job and the second release report the conflict and the remedy.
                ours, theirs = f"{team.operator_namespace}/{team.release}", f"{system.namespace}/{NAME}"
                job.until(lambda _: job.condition("OperatorConflict").get("status") == "True", "in conflict")
                message = (
                    f"operators {ours} and {theirs} serve this job, and only {ours}, "
                    "the oldest of them, runs it: give each release its own watchNamespaces"
                )
                assert job.condition("OperatorConflict")["message"] == message
                refusal = (
                    f"the older release {ours} also serves namespace {shared.namespace}: this operator "
                    "reconciles no job there. Uninstall one of the two, or give each release its own watchNamespaces"
                )
                _until_unready(system)
                answer = system.kubectl("exec", f"deployment/{NAME}", "--", "python", "-c", READYZ)
                assert answer.strip() == f"503 {refusal}"
                assert refusal in system.kubectl("logs", f"deployment/{NAME}")

                # The first release continues to run the job.
                job.patch({"sampler": {"replicas": 2}})
                job.until_ready("1/1", "2/2")
                job.until_steps()
                assert job.condition("OperatorConflict")["message"] == message
                assert _warnings(job) == [(message, 1)]
                if team.cluster.parts:  # its audit log is on this machine
                    user = f"system:serviceaccount:{system.namespace}:{NAME}"
                    expected = {("patch", f"{PLURAL}/status"): 1, ("create", "events"): 1}
                    assert _writes(team, user, shared.namespace) == expected

            # After the second release, the condition is false, and the job is the same.
            job.until(lambda _: job.condition("OperatorConflict")["status"] == "False", "without a conflict")
            assert job.condition("OperatorConflict")["reason"] == "OneOperator"
            assert _definition_uid(team) == definition
            job.until_steps()
            assert uids.items() < job.uids().items()
            assert (job.status["restarts"], job.status["failures"]) == (0, 0)


@contextmanager
def _second_release(system: Team, namespace: str) -> Iterator[None]:
    """Installs the chart with the values of the first release, as docs/install.md describes, for one namespace."""
    where = ("--namespace", system.namespace)
    first = system.cluster.run(
        "helm", "get", "values", system.release, "--namespace", system.operator_namespace, "--output=json"
    ).stdout
    options = [
        f"--set=watchNamespaces={{{namespace}}}",
        "--set=crds.install=false",
        "--set=rbac.userRoles=false",
    ]
    options += ["--set=replicaCount=1", "--values=-"]
    system.cluster.run("helm", "install", RELEASE, str(CHART), *where, *options, stdin=first, seconds=120)
    try:
        yield
    finally:
        system.cluster.run("helm", "uninstall", RELEASE, *where, "--wait", seconds=120)


def _until_unready(system: Team) -> None:
    """Waits until the kubelet has found that the operator's pod is not ready."""
    for _ in every(0.5):
        (pod,) = json.loads(system.kubectl("get", "pods", "--output=json"))["items"]
        events = system.kubectl("get", "events", "--field-selector=reason=Unhealthy", "--output=json")
        found = [event["message"] for event in json.loads(events)["items"]]
        conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
        if conditions.get("Ready") == "False" and any("statuscode: 503" in message for message in found):
            return
    raise AssertionError(f"the operator's pod is ready: {conditions}, {found}")


def _definition_uid(team: Team) -> str:
    return team.cluster.kubectl("get", "crd", f"{PLURAL}.{GROUP}", "--output=jsonpath={.metadata.uid}")


def _warnings(job: Job) -> list[tuple[str, int]]:
    """Messages of the events OperatorConflict, and how often each was emitted."""
    found = job.team.kubectl("get", "events", "--field-selector=reason=OperatorConflict", "--output=json")
    return [(event["message"], event["count"]) for event in json.loads(found)["items"]]


def _writes(team: Team, user: str, namespace: str) -> Counter[tuple[str, str]]:
    """Counts a user's requests in a namespace that are not only reads, by verb and resource."""
    found: Counter[tuple[str, str]] = Counter()
    for entry in team.audit():
        ref = entry.get("objectRef") or {}
        if entry["user"].get("username") != user or ref.get("namespace") != namespace:
            continue
        if entry["verb"] not in ("get", "list", "watch"):
            found[entry["verb"], "/".join(filter(None, (ref["resource"], ref.get("subresource"))))] += 1
    return found
