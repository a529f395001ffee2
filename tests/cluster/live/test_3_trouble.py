"""Jobs that cannot run, or end badly: each says why, in its status and as an Event. All are applied before the first test of
this folder."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from jobs import Job, Json, Team, every, example
from troubles import NOWHERE, PLAIN

pytestmark = pytest.mark.timeout(300)

READY: dict[str, tuple[str, str]] = {
    # The scheduler's own words, whatever they are: should it look while the node is tainted, as after the API server was away,
    # it tells of the taint, and looks again only after minutes.
    "nowhere": ("Unschedulable", "cannot be scheduled: 0/1 nodes are available: 1 node(s) "),
    "no-image": ("ImagePullFailed", "127.0.0.1:1/nothing/here:1"),
    "privileged": ("PodSecurityViolation", "allowPrivilegeEscalation"),
}


@pytest.mark.parametrize("name", READY)
def test_a_job_that_cannot_run_says_why(troubled: dict[str, Job], name: str) -> None:
    job, (reason, words) = troubled[name], READY[name]

    def says_so(status: Json) -> bool:
        ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
        return bool(ready.get("reason") == reason and words in ready["message"])

    status = job.until(says_so, f"telling {reason}")
    assert status["phase"] in ("Pending", "Starting")
    assert words in status["message"], "what `kubectl describe` shows first"
    _until_event(job, lambda told, message: told == reason and words in message)


FAILED: dict[str, tuple[str, str]] = {
    "small": ("BackoffLimitExceeded", "OOMKilled"),
    "late": ("DeadlineExceeded", "5"),
    "crash": ("BackoffLimitExceeded", "exit code 3"),
    "raises": ("UserCodeError", "ValueError: the wheel came off (raises.py, line 12)"),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_job_that_ends_badly_says_why(troubled: dict[str, Job], name: str) -> None:
    job, (reason, words) = troubled[name], FAILED[name]
    status = job.until_phase("Failed", seconds=150)
    failed = job.condition("Failed")
    assert failed["reason"] == reason, status
    assert words in failed["message"]
    _until_event(job, lambda told, message: told == reason and words in message)
    if name in ("small", "crash"):
        assert f"{name}-" in failed["message"], "which pod"
    for _ in every(0.5, 60):
        if not any(pod["status"]["phase"] in ("Pending", "Running") for pod in job.pods().values()):
            return
    raise AssertionError(f"pods of an ended job go on: {list(job.pods())}")


def test_an_ended_job_is_deleted_after_its_time_to_live(troubled: dict[str, Job]) -> None:
    job = troubled["brief"]
    for _ in every(0.5, 90):
        if not job.team.kubectl("get", "rlj", "brief", "--ignore-not-found"):
            break
    else:
        raise AssertionError(f"it is still there: {job.status}")
    for _ in every(0.5, 30):
        if not job.left():
            return
    raise AssertionError(job.left())


def test_a_quota_that_is_exceeded_is_told_and_healed(team: Team) -> None:
    hard = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full", "namespace": team.namespace},
    }
    team.cluster.apply(hard | {"spec": {"hard": {"pods": "0"}}})
    for _ in every(0.2, 20):  # a quota takes hold when its use is counted
        if "hard" in json.loads(team.kubectl("get", "quota", "full", "-o", "json")).get("status", {}):
            break
    job = team.submit("over-quota", example("cartpole-impala") | PLAIN)

    def says_so(status: Json) -> bool:
        ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
        return bool(ready.get("reason") == "QuotaExceeded" and "exceeded quota: full" in ready["message"])

    job.until(says_so, "telling of the quota")
    _until_event(job, lambda told, message: told == "QuotaExceeded")
    team.kubectl("delete", "quota", "full")
    job.until(lambda _: len(job.pods()) == 2, "made after all")
    job.delete()


def test_a_job_deleted_while_it_is_made_leaves_nothing(team: Team) -> None:
    spec = example("cartpole-impala") | PLAIN | {"sampler": {"replicas": 30, "template": NOWHERE}}
    for number in range(5):
        job = team.submit(f"gone-{number}", spec)
        job.delete()
    for _ in every(0.5, 60):
        left = [name for number in range(5) for name in Job(team, f"gone-{number}").left()]
        if not left:
            return
    raise AssertionError(left)


def test_a_namespace_with_running_jobs_is_deleted_without_hanging(team: Team) -> None:
    other = Team(team.cluster, "short-lived", team.operator_namespace, team.release)
    team.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other.namespace}})
    for number in range(3):
        other.submit(f"job-{number}", example("cartpole-impala"))
    jobs = [Job(other, f"job-{number}") for number in range(3)]
    for job in jobs:
        job.until(lambda status: status.get("phase"), "noticed")
    team.cluster.kubectl("delete", "namespace", other.namespace, "--timeout=90s", seconds=100)


def _until_event(job: Job, wanted: Callable[[str, str], bool]) -> None:
    for _ in every(0.3, 20):
        if any(wanted(reason, message) for reason, message in job.events()):
            return
    raise AssertionError(f"no such event: {job.events()}")
