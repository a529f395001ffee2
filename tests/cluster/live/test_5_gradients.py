"""A3C and PPO in real pods: parameter holders that are lost, and user code with an LSTM, at the same time."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from jobs import CLAIM, EXAMPLES, GENTLE, Job, Json, Team, example

pytestmark = pytest.mark.timeout(300)

BEGIN_SECONDS = 180
"""Seven pods import torch at once."""
MORE_STEPS = 2_000
"""More than a learner gets until it is deleted, which takes a second; seconds for two samplers of GENTLE."""


@pytest.fixture(scope="module")
def jobs(team: Team) -> Iterator[dict[str, Job]]:
    """Both run while each is looked at."""
    memory = team.code("memory", memory_cartpole=(EXAMPLES / "memory_cartpole.py").read_text())
    specs = {
        "holders": example(
            "cartpole-two-holders",
            stop={"seconds": 3600, "environmentSteps": 10**9},
            code=team.code("gentle", gentle=GENTLE),
            environment={"id": "gentle:Gentle-v0", "numEnvs": 4},
            checkpoint={"volume": {"claimTemplate": CLAIM}, "everySeconds": 2},
        ),
        "recurrent": example(
            "memory-cartpole-a3c",
            algorithm={"ppo": {"rolloutLength": 32}},
            stop={"environmentSteps": 30_000},
            code=memory,
        ),
    }
    jobs = {name: team.submit(name, spec) for name, spec in specs.items()}
    yield jobs
    for job in jobs.values():
        job.delete()


def test_ppo_with_an_lstm_learns_in_an_environment_of_a_config_map(jobs: dict[str, Job]) -> None:
    status = jobs["recurrent"].until_phase("Succeeded", BEGIN_SECONDS)
    assert status["progress"]["environmentSteps"] >= 30_000
    assert status["progress"]["policyLag"] == 0, "samplers and learner are in step"
    assert status["failures"] == status["restarts"] == 0


def test_a_killed_parameter_holder_comes_back_and_both_go_on_from_a_checkpoint(
    jobs: dict[str, Job],
) -> None:
    job = jobs["holders"]
    before = until_checkpoint(job)
    uids = {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    job.kill("learner-1")
    lost = job.until(lambda status: status["learner"]["restarts"] > before["learner"]["restarts"], "counted")
    assert (lost["phase"], lost["learner"]["summary"]) == ("Restarting", "1/2")
    job.until_ready("2/2", "2/2")
    job.until_steps()

    after = job.status
    assert after["progress"]["environmentSteps"] > before["checkpoint"]["step"] > 0
    assert (after["learner"]["restarts"], after["sampler"]["restarts"]) == (1, 0)
    assert (after["failures"], after["disruptions"]) == (0, 1)
    assert {name: pod["metadata"]["uid"] for name, pod in job.pods().items()} == uids


def test_the_first_holders_pod_is_deleted_and_made_again_and_they_come_to_their_end(
    jobs: dict[str, Job],
) -> None:
    """The new pod reads the new rule at once; the others are in its hands."""
    job = jobs["holders"]
    before = until_checkpoint(job)
    job.patch({"stop": {"environmentSteps": (goal := job.steps + MORE_STEPS)}})
    job.team.kubectl("delete", "pod", f"{job.name}-learner-0", "--grace-period=1")
    status = job.until_phase("Succeeded", BEGIN_SECONDS)
    assert status["progress"]["environmentSteps"] >= goal
    assert status["learner"]["restarts"] == before["learner"]["restarts"] + 1
    assert (status["failures"], status["sampler"]["restarts"]) == (0, 0)
    assert status["disruptions"] == before["disruptions"] + 1

    points = curve(job)
    steps = [point["environmentSteps"] for point in points]
    assert steps == sorted(steps), "what was given up is no part of the curve"
    assert steps[-1] == status["progress"]["environmentSteps"]
    assert points[-1]["updates"] == points[-1]["gradients/applied"] == status["progress"]["updates"]
    for point in points:
        pushed, *others = (point[f"gradients/{name}"] for name in ("pushed", "applied", "dropped", "queued"))
        assert pushed == sum(others), point


def until_checkpoint(job: Job) -> Json:
    """The status when all are there and the newest checkpoint is of now."""
    job.until_ready("2/2", "2/2", seconds=BEGIN_SECONDS)
    steps = job.until_steps()
    return job.until(lambda status: status.get("checkpoint", {}).get("step", 0) >= steps, "at a checkpoint")


def curve(job: Job) -> list[Json]:
    """What the first learner has left in its volume."""
    volume = json.loads(job.team.kubectl("get", "pvc", f"{job.name}-checkpoints", "-o", "json"))["spec"][
        "volumeName"
    ]
    spec = json.loads(job.team.kubectl("get", "pv", volume, "-o", "json"))["spec"]
    path = (spec.get("local") or spec["hostPath"])["path"]
    text = job.team.cluster.run("cat", f"{path}/progress.jsonl").stdout
    return [json.loads(line) for line in text.splitlines()]
