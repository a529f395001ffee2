"""A3C and PPO in real pods, parameter holders that are lost, and an algorithm of a user's own, at the same time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jobs import CLAIM, EXAMPLES, GENTLE, Job, Json, Team, every, example

pytestmark = pytest.mark.timeout(300)

BEGIN_SECONDS = 180
"""Ten pods import torch at once."""
MORE_STEPS = 1_000
"""Two samplers of GENTLE need 5 s for them, the deletion of a pod 1 s."""


@pytest.fixture(scope="module")
def jobs(team: Team) -> Iterator[dict[str, Job]]:
    """All run while each is looked at."""
    memory, reinforce = (
        team.code(module.replace("_", "-"), **{module: (EXAMPLES / f"{module}.py").read_text()})
        for module in ("memory_cartpole", "reinforce")
    )
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
        "own": example("cartpole-own-algorithm", stop={"environmentSteps": 30_000}, code=reinforce),
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


def test_an_algorithm_of_a_users_own_comes_from_a_config_map(jobs: dict[str, Job]) -> None:
    status = jobs["own"].until_phase("Succeeded", BEGIN_SECONDS)
    assert status["algorithm"] == "reinforce", "the name of its module"
    assert status["progress"]["environmentSteps"] >= 30_000
    assert status["progress"]["updates"] > 0
    assert status["policyUri"].startswith("file:///output/")
    assert status["failures"] == status["restarts"] == 0


def test_a_killed_parameter_holder_comes_back_and_both_go_on_from_a_checkpoint(
    jobs: dict[str, Job],
) -> None:
    job = jobs["holders"]
    job.until_ready("2/2", "2/2", seconds=BEGIN_SECONDS)
    until(lambda: newest_checkpoint(job) > 0)
    uids = {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    life, step = curve(job)[-1]["run"], newest_checkpoint(job)
    job.kill("learner-1")
    lost = job.until(lambda status: status["learner"]["restarts"] > 0, "counted")
    assert (lost["phase"], lost["learner"]["summary"]) == ("Restarting", "1/2")
    after = job.until_ready("2/2", "2/2")
    until(lambda: curve(job)[-1]["run"] != life and curve(job)[-1]["environmentSteps"] > step)

    assert next(point for point in curve(job) if point["run"] != life)["environmentSteps"] >= step
    assert (after["learner"]["restarts"], after["sampler"]["restarts"]) == (1, 0)
    assert (after["failures"], after["disruptions"]) == (0, 1)
    assert {name: pod["metadata"]["uid"] for name, pod in job.pods().items()} == uids


def test_the_first_holders_pod_is_made_again_and_brings_the_run_to_its_end(jobs: dict[str, Job]) -> None:
    job = jobs["holders"]
    job.until_ready("2/2", "2/2")
    life = curve(job)[-1]["run"]
    job.patch({"stop": {"environmentSteps": (goal := curve(job)[-1]["environmentSteps"] + MORE_STEPS)}})
    job.team.kubectl("delete", "pod", f"{job.name}-learner-0", "--grace-period=1")
    status = job.until_phase("Succeeded", BEGIN_SECONDS)
    assert status["progress"]["environmentSteps"] >= goal
    assert (status["learner"]["restarts"], status["sampler"]["restarts"]) == (2, 0)
    assert (status["failures"], status["disruptions"]) == (0, 2)

    points = curve(job)
    steps = [point["environmentSteps"] for point in points]
    assert steps == sorted(steps), "what was given up is no part of the curve"
    assert steps[-1] == status["progress"]["environmentSteps"]
    assert points[-1]["run"] != life
    assert points[-1]["updates"] == points[-1]["gradients/applied"] == status["progress"]["updates"]
    for point in points:
        pushed, *others = (point[f"gradients/{name}"] for name in ("pushed", "applied", "dropped", "queued"))
        assert pushed == sum(others), point


def until(holds: Callable[[], bool]) -> None:
    for _ in every(0.2, 60):
        if holds():
            return
    raise AssertionError("it did not come to that in 60 s")


def curve(job: Job) -> list[Json]:
    """What the first learner has written of it, which is newer than the status; the last line may be half written."""
    return [json.loads(line) for line in (volume(job) / "progress.jsonl").read_text().split("\n")[:-1]]


def newest_checkpoint(job: Job) -> int:
    """Its environment steps; 0 if there is none."""
    found = (volume(job) / "checkpoints").glob("step-*")
    return max((int(path.name.removeprefix("step-")) for path in found), default=0)


def volume(job: Job) -> Path:
    """The first learner's, as it is seen from this machine."""
    claim = json.loads(job.team.kubectl("get", "pvc", f"{job.name}-checkpoints", "-o", "json"))
    found = json.loads(job.team.kubectl("get", "pv", claim["spec"]["volumeName"], "-o", "json"))
    return Path((found["spec"].get("local") or found["spec"]["hostPath"])["path"])
