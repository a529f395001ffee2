"""One run, and everything about it dies once: containers, pods, the operator, its leader, the API server, etcd."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from jobs import CLAIM, GENTLE, Job, Json, Team, every, example
from pod_metrics import pod_metrics

pytestmark = pytest.mark.timeout(300)

HANDOVER_SECONDS = 15.0


@pytest.fixture(scope="module")
def job(team: Team) -> Iterator[Job]:
    """A run without end; the tests of this file follow one another."""
    spec = example("cartpole-impala", sampler={"replicas": 2}, stop={"seconds": 3600})
    spec["algorithm"]["impala"]["learningRateSchedule"] = "Constant"
    spec |= {
        "code": team.code("gentle", gentle=GENTLE),
        "environment": {"id": "gentle:Gentle-v0", "numEnvs": 4},
    }
    checkpoint = {"volume": {"claimTemplate": CLAIM}, "everySeconds": 3}
    job = team.submit("survivor", spec | {"checkpoint": checkpoint})
    job.until_ready("1/1", "2/2", seconds=120)
    job.until(lambda status: status.get("checkpoint"), "at its first checkpoint")
    yield job
    job.delete()


class Healed:
    """What one fault may change: counted once, where it belongs."""

    def __init__(self, job: Job) -> None:
        self.before = job.status
        self.job = job

    def check(self, *, disruptions: int, learner: int = 0, sampler: int = 0) -> Json:
        after = self.job.until_ready("1/1", "2/2")
        counts = {
            "failures": after["failures"] - self.before["failures"],
            "disruptions": after["disruptions"] - self.before["disruptions"],
            "learner": after["learner"]["restarts"] - self.before["learner"]["restarts"],
            "sampler": after["sampler"]["restarts"] - self.before["sampler"]["restarts"],
        }
        wanted = {"failures": 0, "disruptions": disruptions, "learner": learner, "sampler": sampler}
        assert counts == wanted, after
        self.job.until_steps()
        return after


def test_kubectl_and_prometheus_see_it_train(job: Job) -> None:
    job.until(lambda status: status["progress"].get("meanReturn"), "with episodes that are over")
    shown = job.team.kubectl("get", "rlj", job.name)
    assert re.search(r"survivor +Running +impala +1/1 +2/2 +[1-9][0-9]* +[0-9.]+ ", shown), shown
    metrics = pod_metrics(job.team)
    assert metrics["survivor-learner-0"]["rltraining_learner_environment_steps_total"] > 0
    for sampler in ("survivor-sampler-0", "survivor-sampler-1"):
        assert metrics[sampler]["rltraining_sampler_environment_steps_total"] > 0
    operators = [found for pod, found in metrics.items() if pod.startswith(job.team.release)]
    assert sum(found["rltraining_leader"] for found in operators) == 1
    assert all(found["rltraining_jobs"] >= 1 for found in operators)


def test_a_killed_sampler_container_is_restarted_in_place(job: Job) -> None:
    healed, uid = Healed(job), job.pod("sampler-0")["metadata"]["uid"]
    job.kill("sampler-0")
    job.until(lambda status: status["sampler"]["restarts"] > healed.before["sampler"]["restarts"], "counted")
    healed.check(disruptions=1, sampler=1)
    assert job.pod("sampler-0")["metadata"]["uid"] == uid


def test_a_deleted_sampler_pod_is_made_again(job: Job) -> None:
    healed = Healed(job)
    others = {name: pod["metadata"]["uid"] for name, pod in job.pods().items() if "sampler-1" not in name}
    job.team.kubectl("delete", "pod", "survivor-sampler-1", "--grace-period=1")
    job.until(lambda status: status["sampler"]["restarts"] > healed.before["sampler"]["restarts"], "counted")
    healed.check(disruptions=1, sampler=1)
    now = {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    assert others.items() <= now.items(), "nobody else was touched"


def test_a_killed_learner_container_resumes_from_its_checkpoint(job: Job) -> None:
    healed = Healed(job)
    job.kill("learner-0")
    job.until(lambda status: status["learner"]["restarts"] > healed.before["learner"]["restarts"], "counted")
    after = healed.check(disruptions=1, learner=1)
    assert after["progress"]["environmentSteps"] >= healed.before["checkpoint"]["step"] > 0


def test_a_deleted_learner_pod_resumes_from_its_volume(job: Job) -> None:
    healed = Healed(job)
    job.team.kubectl("delete", "pod", "survivor-learner-0", "--grace-period=1")
    job.until(lambda status: status["learner"]["restarts"] > healed.before["learner"]["restarts"], "counted")
    after = healed.check(disruptions=1, learner=1)
    assert after["progress"]["environmentSteps"] >= healed.before["checkpoint"]["step"] > 0
    samplers = [pod for name, pod in job.pods().items() if "sampler" in name]
    assert all(pod["status"]["phase"] == "Running" for pod in samplers), (
        "samplers wait for it and attach again"
    )


def test_a_minute_without_an_operator_is_not_noticed_and_what_happens_in_it_is_counted(job: Job) -> None:
    healed, uids = Healed(job), {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    job.team.operator("scale", "deployment", job.team.release, "--replicas=0")
    job.team.operator("delete", "pods", "-l", "app.kubernetes.io/name=rltraining-operator", "--wait")
    steps = job.steps
    time.sleep(20)
    job.kill("sampler-1")  # heals without anyone
    time.sleep(40)
    assert job.steps == steps, "nobody writes the status"
    job.team.operator("scale", "deployment", job.team.release, "--replicas=2")
    job.until(lambda status: status["sampler"]["restarts"] > healed.before["sampler"]["restarts"], "counted")
    healed.check(disruptions=1, sampler=1)
    assert {name: pod["metadata"]["uid"] for name, pod in job.pods().items()} == uids


def test_a_leader_that_hangs_is_followed_by_the_other_replica(job: Job) -> None:
    job.team.operator("rollout", "status", "deployment", job.team.release, "--timeout=60s", seconds=90)
    healed, first = Healed(job), job.team.leader()
    process = _operator_process(job.team, first)
    process.suspend()
    try:
        second = _until_led_by(job.team, lambda leader: leader != first)
    finally:
        process.resume()
    healed.check(disruptions=0)
    assert job.team.leader() == second, "the one that hung stands by now"


def test_a_killed_leader_is_followed(job: Job) -> None:
    """By the other replica, or by the same one if the kubelet is quicker than the lease."""
    healed, lease = Healed(job), job.team.lease()
    _operator_process(job.team, job.team.leader()).kill()
    _until_led_by(job.team, lambda _: job.team.lease()["acquireTime"] != lease["acquireTime"])
    healed.check(disruptions=0)


def test_half_a_minute_without_an_api_server_is_not_noticed(job: Job) -> None:
    healed, uids = Healed(job), {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    job.team.cluster.stop("kube-apiserver")
    time.sleep(30)
    job.team.cluster.start("kube-apiserver")
    healed.check(disruptions=0)
    assert {name: pod["metadata"]["uid"] for name, pod in job.pods().items()} == uids


def test_a_killed_etcd_is_not_noticed(job: Job) -> None:
    healed = Healed(job)
    job.team.cluster.restart("etcd", kill=True)
    healed.check(disruptions=0)


def test_scaled_suspended_resumed_and_ended_by_a_new_rule(job: Job) -> None:
    job.team.kubectl("scale", "rlj/survivor", "--replicas=4")
    job.until_ready("1/1", "4/4", seconds=120)
    job.team.kubectl("scale", "rlj/survivor", "--replicas=2")
    job.until_ready("1/1", "2/2")
    left = {"survivor-learner-0", "survivor-sampler-0", "survivor-sampler-1"}
    job.until(lambda _: set(job.pods()) == left, "without the samplers of the highest indices")

    steps = job.steps
    job.patch({"runPolicy": {"suspend": True}})
    job.until(lambda status: status["phase"] == "Suspended" and not job.pods(), "suspended without pods")
    job.patch({"runPolicy": {"suspend": False}})
    job.until_ready("1/1", "2/2", seconds=120)
    job.until_steps()
    assert job.steps >= steps * 0.5, "it goes on from its checkpoint"

    job.patch({"stop": {"seconds": 1}})
    status = job.until_phase("Succeeded")
    assert status["failures"] == 0


def test_no_pod_was_made_twice(job: Job) -> None:
    """The audit log has every request: of each name only as many pods as were needed were asked for with success."""
    made: dict[str, int] = {}
    for entry in job.team.cluster.audit():
        ref = entry.get("objectRef") or {}
        created = entry["verb"] == "create" and entry["responseStatus"]["code"] == 201
        if ref.get("resource") == "pods" and not ref.get("subresource") and created:
            name = ref.get("name") or ""
            if name.startswith("survivor-"):
                made[name] = made.get(name, 0) + 1
    assert made == {
        "survivor-learner-0": 3,  # the first, after its deletion, after the resume
        "survivor-sampler-0": 2,
        "survivor-sampler-1": 3,
        "survivor-sampler-2": 1,
        "survivor-sampler-3": 1,
    }


def _until_led_by(team: Team, wanted: Callable[[str], bool]) -> str:
    """The leader that is wanted, within the time that a hand-over may take."""
    began = time.monotonic()
    for _ in every(0.2, HANDOVER_SECONDS):
        if (leader := team.leader()) and wanted(leader):
            return leader
    raise AssertionError(f"nobody took over within {time.monotonic() - began:.1f} s: {team.lease()}")


def _operator_process(team: Team, pod: str) -> psutil.Process:
    """The program of an operator pod, seen from outside."""
    found = json.loads(team.operator("get", "pod", pod, "-o", "json"))
    container = found["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    for process in psutil.process_iter():
        with suppress(OSError):
            if container in Path(f"/proc/{process.pid}/cgroup").read_text():
                return process
    raise AssertionError(f"no process of {pod} is seen on this machine")
