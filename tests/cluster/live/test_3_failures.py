"""Jobs that cannot run or that fail report the reason in their status and in an Event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
from faulty_jobs import NOWHERE, PLAIN, faulty_job
from jobs import Json, Team, every, example

pytestmark = [pytest.mark.timeout(300), pytest.mark.at_once]

READY: dict[str, tuple[str, str]] = {
    "nowhere": ("Unschedulable", "cannot be scheduled: 0/1 nodes are available: 1 node(s) "),
    "no-image": ("ImagePullFailed", "127.0.0.1:1/nothing/here:1"),
    "typo": ("AdmissionRefused", 'unknown field "spec.containers[0].enw"'),
    "privileged": ("PodSecurityViolation", "allowPrivilegeEscalation"),
}


@pytest.mark.parametrize("name", READY)
def test_a_job_that_cannot_run_says_why(team: Team, name: str) -> None:
    reason, words = READY[name]

    def says_so(status: Json) -> bool:
        ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
        return bool(ready.get("reason") == reason and words in ready["message"])

    with faulty_job(team, name) as job:
        status = job.until(says_so, f"reporting {reason}")
        assert status["phase"] in ("Pending", "Starting")
        assert words in status["message"], "what `kubectl describe` shows first"
        job.until_event(reason, words)


def test_a_missing_config_map_is_named_before_the_delay_is(team: Team) -> None:
    reason, words = "VolumeMountFailed", 'configmap "nothere" not found'
    with faulty_job(team, "no-code") as job:
        job.until(lambda status: words in status.get("message", ""), f"reporting {words}")
        assert job.condition("Ready")["reason"] == reason
        job.until_event(reason, words)
        assert "StartDelayed" not in [found for found, _ in job.events()], "the cause comes first"

        # Print how long it took. The times of pods and events are whole seconds.
        pod = job.pods()["no-code-learner-0"]
        times = {c["type"]: c["lastTransitionTime"] for c in pod["status"]["conditions"]}
        waited = job.event_times()[reason] - datetime.fromisoformat(times["PodScheduled"])
        print(f"{reason} was reported {waited.total_seconds():.0f} s after the pod got its node")

        # The pod starts once the ConfigMap exists.
        team.code("nothere", anything="")
        job.until(lambda status: status.get("phase") == "Running", "Running")


FAILED: dict[str, tuple[str, str]] = {
    "small": ("BackoffLimitExceeded", "OOMKilled"),
    "late": ("DeadlineExceeded", "5"),
    "crash": ("BackoffLimitExceeded", "exit code 3"),
    "raises": ("UserCodeError", "ValueError: the wheel came off (raises.py, line 12)"),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_job_that_ends_badly_says_why(team: Team, name: str) -> None:
    reason, words = FAILED[name]
    with faulty_job(team, name) as job:
        status = job.until_phase("Failed")
        failed = job.condition("Failed")
        assert failed["reason"] == reason, status
        assert words in failed["message"]
        job.until_event(reason, words)
        if name in ("small", "crash"):
            assert f"{name}-" in failed["message"], "which pod"
        for _ in every(0.5):
            if not any(pod["status"]["phase"] in ("Pending", "Running") for pod in job.pods().values()):
                return
        raise AssertionError(f"pods of a job that has ended still run: {list(job.pods())}")


def test_an_ended_job_is_deleted_after_its_time_to_live(team: Team) -> None:
    with faulty_job(team, "brief") as job:
        for _ in every(1.0):
            if not team.kubectl("get", "rlj", "brief", "--ignore-not-found"):
                break
        else:
            raise AssertionError(f"it still exists: {job.status}")
        job.until_gone()


THREE_PODS = {"requests.cpu": "30m", "requests.ephemeral-storage": "300Mi", "limits.memory": "6Gi"}
LIMIT_RANGE = {
    "type": "Container",
    "defaultRequest": {"ephemeral-storage": "100Mi"},
    "default": {"memory": "2Gi"},
}
"""Without these defaults such a quota rejects every pod. conftest.py installs the operator with requests of 10m CPU."""


@contextmanager
def with_quota(team: Team, namespace: str, hard: Json, limit_range: Json | None = None) -> Iterator[Team]:
    """A namespace with limited resources, and with default requests and limits of containers."""
    with team.other(namespace) as other:
        specs = {"ResourceQuota": {"hard": hard}}
        if limit_range is not None:
            specs["LimitRange"] = {"limits": [limit_range]}
        for kind, spec in specs.items():
            metadata = {"name": "full", "namespace": other.namespace}
            team.cluster.apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec})
        for _ in every(0.2):  # the quota applies once its use has been counted
            if "hard" in json.loads(other.kubectl("get", "quota", "full", "-o", "json")).get("status", {}):
                break
        yield other


def test_under_a_quota_the_learner_runs_and_samplers_fill_the_rest(team: Team) -> None:
    with with_quota(team, "with-three-pods", THREE_PODS, LIMIT_RANGE) as other:
        spec = example("cartpole-impala", sampler={"replicas": 6}, stop={"environmentSteps": 10**9})
        job = other.submit("three-of-seven", spec | other.gentle("three-of-seven"))
        job.until_ready("1/1", "2/6")
        # A sampler that took the place of a lost learner would give way to it.
        other.kubectl("delete", "pod", "three-of-seven-learner-0", "--grace-period=1")
        job.until(lambda status: status["learner"]["restarts"] == 1, "counted")
        job.until_ready("1/1", "2/6")
        job.until_steps()


def test_a_job_reports_an_exceeded_quota_and_recovers(team: Team) -> None:
    with with_quota(team, "with-quota", {"pods": "0"}) as other:
        job = other.submit("over-quota", example("cartpole-impala") | PLAIN)

        def says_so(status: Json) -> bool:
            ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
            return bool(ready.get("reason") == "QuotaExceeded" and "exceeded quota: full" in ready["message"])

        job.until(says_so, "reporting the quota")
        job.until_event("QuotaExceeded")
        other.kubectl("delete", "quota", "full")
        job.until(lambda _: len(job.pods()) == 2, "with pods after all")


def test_a_job_deleted_during_its_creation_leaves_nothing(team: Team) -> None:
    spec = example("cartpole-impala") | PLAIN | {"sampler": {"replicas": 30, "template": NOWHERE}}
    jobs = []
    for number in range(5):
        with team.job(f"gone-{number}", spec) as job:
            jobs.append(job)
    for job in jobs:
        job.until_gone()


def test_a_namespace_with_running_jobs_is_deleted(team: Team) -> None:
    with team.other("short-lived") as other:
        jobs = {"running": {}, "waiting": PLAIN}
        for name, changes in jobs.items():
            spec = example("cartpole-impala", sampler={"replicas": 1}) | changes
            other.submit(name, spec).until(lambda status: status.get("phase"), "noticed")
