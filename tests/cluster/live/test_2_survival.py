"""One run in which everything dies once: containers, pods, operator, leader, API server, etcd, node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import psutil
import pytest
from jobs import CLAIM, GENTLE, Job, Json, Team, every, example
from pod_metrics import http_port, pod_metrics, summed
from rltraining_api.names import LABEL_JOB_NAME

pytestmark = pytest.mark.timeout(300)
at_once = pytest.mark.at_once("survivor")


def survivor(team: Team) -> Job:
    """A run without end, which the tests of this file use in order."""
    spec = _endless(team, "survivor", samplers=2) | {"recording": {"megabytes": 100}}
    job = team.submit("survivor", spec)
    job.until_ready("1/1", "2/2")
    job.until(lambda status: status.get("checkpoint"), "at its first checkpoint")
    return job


class Healed:
    """The allowed effects of a fault: it is counted once, in the right counter."""

    def __init__(self, team: Team) -> None:
        self.job = survivor(team)
        self.before = self.job.status
        self.uids = self.job.uids()

    def until_counted(self, role: str) -> None:
        """Waits until the operator has counted a restart."""
        known = self.before[role]["restarts"]
        self.job.until(lambda status: status[role]["restarts"] > known, f"counted for a {role}")

    def check(self, *, disruptions: int = 0, learner: int = 0, sampler: int = 0) -> Json:
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


@at_once
def test_kubectl_and_prometheus_see_it_train(team: Team) -> None:
    job = survivor(team)
    job.until(lambda status: status["progress"].get("meanReturn"), "with episodes that are over")
    shown = team.kubectl("get", "rlj", job.name)
    assert re.search(r"survivor +Running +impala +1/1 +2/2 +[1-9][0-9]* +[0-9.]+ ", shown), shown
    metrics = pod_metrics(job)
    assert metrics["survivor-learner-0"]["rltraining_learner_environment_steps_total"] > 0
    for sampler in ("survivor-sampler-0", "survivor-sampler-1"):
        assert metrics[sampler]["rltraining_sampler_environment_steps_total"] > 0
    # Only the replica in the Lease reports that it leads. This may take a moment, while another replica takes over.
    _until(lambda: _leaders(team, pod_metrics(job)) == [team.leader()])
    operators = [found for pod, found in metrics.items() if pod.startswith(team.release)]
    assert all(found["rltraining_jobs"] >= 1 for found in operators)


@at_once
def test_a_killed_sampler_container_is_restarted_in_place(team: Team) -> None:
    healed = Healed(team)
    healed.job.kill("sampler-0")
    healed.until_counted("sampler")
    healed.check(disruptions=1, sampler=1)
    assert healed.job.uids() == healed.uids


@at_once
def test_a_deleted_sampler_pod_is_created_again(team: Team) -> None:
    healed = Healed(team)
    team.kubectl("delete", "pod", "survivor-sampler-1", "--grace-period=1")
    healed.until_counted("sampler")
    healed.check(disruptions=1, sampler=1)
    others = {(name, uid) for name, uid in healed.uids.items() if name != "survivor-sampler-1"}
    assert set(healed.job.uids().items()) & set(healed.uids.items()) == others


@at_once
def test_a_killed_learner_container_resumes_from_its_checkpoint(team: Team) -> None:
    healed = Healed(team)
    healed.job.kill("learner-0")
    healed.until_counted("learner")
    after = healed.check(disruptions=1, learner=1)
    assert after["progress"]["environmentSteps"] >= healed.before["checkpoint"]["step"] > 0


@at_once
def test_a_deleted_learner_pod_resumes_from_its_volume(team: Team) -> None:
    healed = Healed(team)
    team.kubectl("delete", "pod", "survivor-learner-0", "--grace-period=1")
    healed.until_counted("learner")
    after = healed.check(disruptions=1, learner=1)
    assert after["progress"]["environmentSteps"] >= healed.before["checkpoint"]["step"] > 0
    samplers = [pod for name, pod in healed.job.pods().items() if "sampler" in name]
    assert all(pod["status"]["phase"] == "Running" for pod in samplers), "samplers reconnect to the learner"


@at_once
def test_its_updates_before_and_after_all_this_are_made_again(team: Team) -> None:
    team.cluster.need_local("it reads the files of a volume")
    # The rerun computes, while the jobs of other tests share the processors: on a busy machine it took up to 300 s.
    first = ("nice", "-n", "-10")
    command = [*first, Path(sys.executable).with_name("rltrain"), "rerun", survivor(team).volume()]
    with TemporaryDirectory() as folder:
        Path(folder, "gentle.py").write_text(GENTLE)
        environment = os.environ | {"PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    updates = re.search(r"made ([\d,]+) updates from 0 to .* of the learner equal the recording", done.stdout)
    assert updates is not None, done
    assert int(updates[1].replace(",", "")) > 10


def test_a_job_learns_while_rltrain_chaos_deletes_its_pods(team: Team) -> None:
    program, kills = (
        Path(sys.executable).with_name("rltrain"),
        ("--kill", "sampler=5s", "--kill", "learner=8s"),
    )
    with team.job("chaos", _endless(team, "chaos", 2)) as job:
        done = subprocess.run(
            [program, "chaos", "chaos", "--cluster", *kills, "--for", "12s", "-n", team.namespace],
            env=team.cluster.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        status = job.status
    assert done.returncode == 0, done
    assert status["restarts"] >= done.stdout.count("is ready again after") > 0, done
    assert status["failures"] == 0
    assert "Running at step " in done.stdout


@pytest.mark.at_once("scaled")
def test_a_job_is_scaled_suspended_resumed_and_ended_by_a_new_rule(team: Team) -> None:
    spec = _endless(team, "scaled", samplers=1) | {"runPolicy": {"learnerEviction": "Refuse"}}
    with team.job("scaled", spec) as job:
        job.until_ready("1/1", "1/1")
        job.until(lambda _: team.kubectl("get", "pdb", "--ignore-not-found", "scaled-learner"), "protected")
        team.kubectl("scale", "rlj/scaled", "--replicas=2")
        job.until_ready("1/1", "2/2")
        team.kubectl("scale", "rlj/scaled", "--replicas=1")
        job.until_ready("1/1", "1/1")
        left = {"scaled-learner-0", "scaled-sampler-0"}
        job.until(lambda _: set(job.pods()) == left, "without the samplers of the highest indices")

        steps = job.until(lambda status: status.get("checkpoint"), "at a checkpoint")["checkpoint"]["step"]
        job.patch({"runPolicy": {"suspend": True}})
        job.until(lambda status: status["phase"] == "Suspended" and not job.pods(), "suspended without pods")
        job.patch({"runPolicy": {"suspend": False}})
        job.until_ready("1/1", "1/1")
        job.until_steps()
        assert job.steps >= steps > 0, "it continues from its checkpoint"

        job.patch({"stop": {"seconds": 1}})
        assert job.until_phase("Succeeded")["failures"] == 0


def test_training_continues_without_an_operator_and_faults_meanwhile_are_counted_later(team: Team) -> None:
    team.cluster.need_local("it kills a process in a container from outside")
    healed = Healed(team)
    team.operator("scale", "deployment", team.release, "--replicas=0")
    _until(lambda: not team.operator_pods())
    status = healed.job.status
    killed = ("sampler-1", "learner-0")
    for name in killed:
        healed.job.kill(name)  # the kubelet restarts it
    _until(lambda: all(_is_restarted(healed.job.pods()[f"survivor-{name}"]) for name in killed))
    assert healed.job.status == status, "no operator updates the status"
    team.operator("scale", "deployment", team.release, "--replicas=2")
    for role in ("sampler", "learner"):
        healed.until_counted(role)
    healed.check(disruptions=2, learner=1, sampler=1)
    assert healed.job.uids() == healed.uids


def test_another_replica_takes_over_from_a_leader_that_hangs(team: Team) -> None:
    team.cluster.need_local("it stops a process in a container from outside")
    team.operator("rollout", "status", "deployment", team.release, "--timeout=120s", seconds=130)
    healed, first = Healed(team), team.leader()
    process = _operator_process(team, first)
    process.suspend()
    try:
        _until(lambda: team.leader() not in ("", first))
    finally:
        process.resume()
    second = team.leader()
    healed.check()
    assert team.leader() == second, "the replica that hung is now the standby"


def test_a_killed_leader_is_replaced(team: Team) -> None:
    """The other replica leads, or the restarted one if the kubelet is faster than the lease."""
    team.cluster.need_local("it kills a process in a container from outside")
    healed, lease = Healed(team), team.lease()
    _operator_process(team, team.leader()).kill()
    _until(lambda: team.leader() and team.lease()["acquireTime"] != lease["acquireTime"])
    healed.check()


def test_training_continues_without_an_api_server(team: Team) -> None:
    """The outage lasts until the leader gives up its lease and the learner writes another checkpoint."""
    team.cluster.need_local("it stops the API server")
    healed = Healed(team)
    checkpoints = healed.job.volume() / "checkpoints"
    addresses = [f"http://{pod['status']['podIP']}:{http_port(pod)}/metrics" for pod in team.operator_pods()]
    assert any(map(_leads, addresses))
    team.cluster.stop("kube-apiserver")
    known = set(checkpoints.iterdir())
    _until(lambda: set(checkpoints.iterdir()) - known and not any(map(_leads, addresses)))
    team.cluster.start("kube-apiserver")
    healed.check()
    assert healed.job.uids() == healed.uids


def test_training_continues_after_etcd_was_killed(team: Team) -> None:
    team.cluster.need_local("it kills etcd")
    healed = Healed(team)
    team.cluster.restart("etcd", kill=True)
    healed.check()


def test_a_drain_evicts_all_pods_and_the_learner_resumes_where_it_was(team: Team) -> None:
    team.cluster.need_local("it drains the only node")
    healed = Healed(team)
    node = healed.job.pods()["survivor-learner-0"]["spec"]["nodeName"]
    selector = f"--pod-selector={LABEL_JOB_NAME}=survivor"
    try:
        team.cluster.kubectl("drain", node, selector, "--delete-emptydir-data", "--timeout=60s", seconds=70)
        waits = "pod survivor-learner-0 cannot be scheduled"
        healed.job.until(lambda status: waits in status.get("message", ""), "without a node")
    finally:
        team.cluster.kubectl("uncordon", node)
    healed.until_counted("learner")
    after = healed.check(disruptions=3, learner=1, sampler=2)
    steps = healed.before["progress"]["environmentSteps"]
    assert after["progress"]["environmentSteps"] >= steps > 0, (
        "the learner wrote a checkpoint before it ended"
    )


def test_no_pod_was_created_twice(team: Team) -> None:
    """Counts successful requests in the audit log: one for each pod that was needed."""
    created: Counter[str] = Counter()
    for entry in team.audit():
        ref = entry.get("objectRef") or {}
        succeeded = entry["verb"] == "create" and entry["responseStatus"]["code"] == 201
        name = ref.get("name") or ""
        if ref.get("resource") == "pods" and not ref.get("subresource") and succeeded:
            created[name] += name.startswith(("survivor-", "scaled-"))
    assert +created == {
        "survivor-learner-0": 3,  # the first, after its deletion, after the drain
        "survivor-sampler-0": 2,
        "survivor-sampler-1": 3,
        "scaled-learner-0": 2,  # the first, after the resume
        "scaled-sampler-0": 2,
        "scaled-sampler-1": 1,
    }


def _endless(team: Team, name: str, samplers: int) -> Json:
    spec = example("cartpole-impala", sampler={"replicas": samplers}, stop={"seconds": 3600})
    spec["algorithm"]["impala"]["learningRateSchedule"] = "Constant"
    checkpoint = {"volume": {"claimTemplate": CLAIM}, "everySeconds": 1}
    return spec | team.gentle(name) | {"checkpoint": checkpoint}


def _leaders(team: Team, metrics: dict[str, dict[str, float]]) -> list[str]:
    """Returns the operator's pods that report that they lead."""
    operators = {pod: found for pod, found in metrics.items() if pod.startswith(team.release)}
    return [pod for pod, found in operators.items() if found["rltraining_leader"]]


def _until(holds: Callable[[], object]) -> None:
    for _ in every(0.2):
        if holds():
            return
    raise AssertionError("it never happened")


def _is_restarted(pod: Json) -> bool:
    (status,) = pod["status"]["containerStatuses"]
    return bool(status["restartCount"] and status["ready"])


def _leads(url: str) -> bool:
    """Returns whether an operator reports that it leads. An operator that restarts is unreachable and does not lead."""
    try:
        with urlopen(url, timeout=5) as answer:
            return summed(answer.read().decode())["rltraining_leader"] == 1
    except OSError:
        return False


def _operator_process(team: Team, pod: str) -> psutil.Process:
    """Returns the process of an operator pod on this machine."""
    (found,) = [each for each in team.operator_pods() if each["metadata"]["name"] == pod]
    container = found["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    for process in psutil.process_iter():
        with suppress(OSError):
            if container in Path(f"/proc/{process.pid}/cgroup").read_text():
                return process
    raise AssertionError(f"no process of {pod} is seen on this machine")
