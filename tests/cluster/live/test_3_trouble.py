"""Jobs that cannot run, or end badly: each says why, in its status and as an Event. All are applied at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jobs import Job, Json, Team, every, example

pytestmark = pytest.mark.timeout(300)

CRASH = """
import os
import gymnasium as gym

class Crash(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        os._exit(3)

gym.register("Crash-v0", entry_point=Crash)
"""
RAISES = """
import gymnasium as gym

class Raises(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        raise ValueError("the wheel came off")

gym.register("Raises-v0", entry_point=Raises)
"""
NOWHERE = {"spec": {"nodeSelector": {"no-node": "has-this"}}}
PLAIN: Json = {"learner": {"template": NOWHERE}, "sampler": {"template": NOWHERE, "replicas": 1}}


def _template(**spec: Any) -> Json:
    return {"learner": {"template": {"spec": spec}}, "sampler": {"replicas": 1, "template": {"spec": spec}}}


def _trainer(**fields: Any) -> Json:
    return _template(containers=[{"name": "trainer", **fields}])


def _specs(team: Team) -> dict[str, Json]:
    """By name: what is wrong with each."""
    crash = team.code("crash", crash=CRASH)
    raises = team.code("raises", raises=RAISES)
    return {
        "nowhere": PLAIN,
        "no-image": {"image": "127.0.0.1:1/nothing/here:1"},
        "small": _trainer(resources={"limits": {"memory": "40Mi"}}) | {"runPolicy": {"backoffLimit": 0}},
        "privileged": _trainer(securityContext={"allowPrivilegeEscalation": True}),
        "late": PLAIN | {"runPolicy": {"activeDeadlineSeconds": 5}},
        "brief": {"environment": {"id": "Nothing-v0"}, "runPolicy": {"ttlSecondsAfterFinished": 1}},
        "crash": {
            "environment": {"id": "crash:Crash-v0"},
            "code": crash,
            "runPolicy": {"backoffLimit": 1},
        },
        "raises": {"environment": {"id": "raises:Raises-v0"}, "code": raises},
    }


@pytest.fixture(scope="module")
def jobs(team: Team) -> Iterator[dict[str, Job]]:
    """All of them."""
    specs = {name: example("cartpole-impala") | spec for name, spec in _specs(team).items()}
    made = {name: team.submit(name, spec) for name, spec in specs.items()}
    yield made
    for job in made.values():
        job.delete()


READY: dict[str, tuple[str, str]] = {
    "nowhere": ("Unschedulable", "didn't match Pod's node affinity/selector"),
    "no-image": ("ImagePullFailed", "127.0.0.1:1/nothing/here:1"),
    "privileged": ("PodSecurityViolation", "allowPrivilegeEscalation"),
}


@pytest.mark.parametrize("name", READY)
def test_a_job_that_cannot_run_says_why(jobs: dict[str, Job], name: str) -> None:
    job, (reason, words) = jobs[name], READY[name]

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
    "raises": ("UserCodeError", "ValueError: the wheel came off"),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_job_that_ends_badly_says_why(jobs: dict[str, Job], name: str) -> None:
    job, (reason, words) = jobs[name], FAILED[name]
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


def test_an_ended_job_is_deleted_after_its_time_to_live(jobs: dict[str, Job]) -> None:
    job = jobs["brief"]
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
