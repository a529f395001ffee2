"""A3C and PPO in real pods, lost parameter servers, and an algorithm of a user."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from jobs import CLAIM, EXAMPLES, Job, Json, Team, every, example

pytestmark = pytest.mark.timeout(300)
at_once = pytest.mark.at_once("holders")

MORE_STEPS = 1_000
"""Two samplers of GENTLE need 5 s for these steps, the deletion of a pod 1 s."""


ALGORITHMS = "RLTRAINING_TEST_REPRODUCIBLE"
"""Environment variable: the algorithms of the longest test of reproducible jobs, separated by commas. Default: ppo."""
_REPLAY = {"batchSize": 32, "replay": {"minimum": 300, "samplesPerInsert": 2}}
REPRODUCIBLE: dict[str, Json] = {
    "a2c": {"rolloutLength": 16, "learningRateSchedule": "Constant"},
    "ppo": {"rolloutLength": 16, "learningRateSchedule": "Constant"},
    "impala": {"unrollLength": 16, "learningRateSchedule": "Constant"},
    **dict.fromkeys(("dqnApex", "ddpgApex", "sac", "td3"), _REPLAY),
}
STEPS = 2_820
"""Of more than ten updates, each from 16 rows of 16 environments, some of which only reset."""
CONTINUOUS = ("ddpgApex", "sac", "td3")
AT_FULL_SPEED: Json = {"environment": {"id": "CartPole-v1", "numEnvs": 4}}
"""The environment of `Team.gentle` without its pauses: it must make the same updates."""


def code_of_example(team: Team, module: str) -> Json:
    return team.code(module.replace("_", "-"), **{module: (EXAMPLES / f"{module}.py").read_text()})


@pytest.mark.at_once
def test_ppo_with_an_lstm_learns_in_an_environment_of_a_config_map(team: Team) -> None:
    spec = example(
        "memory-cartpole-a3c",
        algorithm={"ppo": {"rolloutLength": 32}},
        sampler={"replicas": 1},
        stop={"environmentSteps": 6_000},
        code=code_of_example(team, "memory_cartpole"),
    )
    with team.job("recurrent", spec) as job:
        status = job.until_phase("Succeeded")
        assert status["progress"]["environmentSteps"] >= 6_000
        assert status["progress"]["policyLag"] == 0, "samplers and learner are in step"
        assert status["failures"] == status["restarts"] == 0


@pytest.mark.at_once
def test_a_users_algorithm_comes_from_a_config_map(team: Team) -> None:
    code = code_of_example(team, "reinforce")
    stop = {"environmentSteps": 30_000}
    spec = example("cartpole-own-algorithm", sampler={"replicas": 1}, stop=stop, code=code)
    with team.job("own", spec) as job:
        status = job.until_phase("Succeeded")
        assert status["algorithm"] == "reinforce", "the name of its module"
        assert status["progress"]["environmentSteps"] >= 30_000
        assert status["progress"]["updates"] > 0
        assert status["policyUri"].startswith("file:///output/")
        assert status["failures"] == status["restarts"] == 0


# One after the other, because each would take 300 s beside the two others on two busy cores.
@pytest.mark.parametrize("algorithm", ["ppo", "impala", "dqnApex"])
@pytest.mark.at_once("reproducible")
def test_reproducible_jobs_are_equal_with_one_sampler_and_with_two_of_which_one_is_lost(
    team: Team, algorithm: str
) -> None:
    team.cluster.need_local("it reads the files of a volume")
    hashes, steps = [], 10**9
    for number, samplers in (("two", 2), ("one", 1)):
        name = f"repeat-{algorithm.lower()}-{number}"
        changes = {
            "algorithm": {algorithm: REPRODUCIBLE[algorithm]},
            "sampler": {"replicas": samplers},
            "reproducible": {"blocks": 4, "hashEvery": 1},
            "checkpoint": {"volume": {"claimTemplate": CLAIM}, "everySeconds": 1},
            "stop": {"environmentSteps": steps},
        }
        environment = team.gentle(name) if samplers == 2 else AT_FULL_SPEED
        with team.job(name, example("cartpole-ppo", **changes) | environment) as job:
            if samplers == 2:
                job.until(lambda status: status.get("progress", {}).get("environmentSteps"), "training")
                team.kubectl("delete", "pod", f"{name}-sampler-1", "--grace-period=1")
                job.until(lambda status: status["sampler"]["restarts"] == 1, "counted for a sampler")
                job.until_ready("1/1", "2/2")
                job.until(lambda _: job.steps >= STEPS, "past the steps of ten updates")
                job.patch({"stop": {"environmentSteps": job.steps}})
            status = job.until_phase("Succeeded")
            assert status["sampler"]["restarts"] == samplers - 1
            steps = status["progress"]["environmentSteps"]
            hashes.append((job.volume() / "hashes.jsonl").read_text())
    assert hashes[0] == hashes[1]
    assert hashes[0].count("\n") >= 10, "one line for each update"


@pytest.mark.parametrize("algorithm", os.environ.get(ALGORITHMS, "ppo").split(","))
def test_a_reproducible_job_is_scaled_and_loses_its_learner_without_an_effect(
    team: Team, algorithm: str
) -> None:
    team.cluster.need_local("it reads the files of a volume")

    def spec(name: str, samplers: int, steps: int, environment: Json) -> Json:
        changes = {
            "algorithm": {algorithm: REPRODUCIBLE[algorithm]},
            "sampler": {"replicas": samplers},
            "reproducible": {"blocks": 4, "hashEvery": 1},
            "checkpoint": {"volume": {"claimTemplate": CLAIM}, "everySeconds": 1},
            "stop": {"environmentSteps": steps},
        }
        whole = example("cartpole-ppo", **changes) | environment
        if algorithm in CONTINUOUS:
            whole["environment"] = {"id": "Pendulum-v1", "numEnvs": 1}
        return whole

    scaled, calm = f"scaled-{algorithm.lower()}", f"calm-{algorithm.lower()}"
    with team.job(scaled, spec(scaled, 1, 10**9, team.gentle(scaled))) as job:
        job.until_ready("1/1", "1/1")
        for samplers in (4, 2):
            team.kubectl("scale", "rlj", job.name, f"--replicas={samplers}")
            job.until_ready("1/1", f"{samplers}/{samplers}")
            job.until_steps()
        team.kubectl("delete", "pod", f"{job.name}-learner-0", "--grace-period=1")
        job.until(lambda status: status["learner"]["restarts"] == 1, "counted for a learner")
        job.until_ready("1/1", "2/2")
        job.until(lambda _: job.steps >= STEPS, "past the steps of ten updates")
        job.patch({"stop": {"environmentSteps": job.steps}})
        steps = job.until_phase("Succeeded")["progress"]["environmentSteps"]
        hashes = (job.volume() / "hashes.jsonl").read_text()
    assert hashes.count("\n") >= 10, "one line for each update"

    with team.job(calm, spec(calm, 4, steps, AT_FULL_SPEED)) as job:
        job.until_phase("Succeeded")
        assert (job.volume() / "hashes.jsonl").read_text() == hashes


@at_once
def test_a_killed_parameter_holder_comes_back_and_both_continue_from_a_checkpoint(team: Team) -> None:
    team.cluster.need_local("it reads the files of a volume")
    checkpoint = {"volume": {"claimTemplate": CLAIM}, "everySeconds": 2}
    spec = example("cartpole-two-holders", stop={"seconds": 3600, "environmentSteps": 10**9})
    job = team.submit("holders", spec | team.gentle("holders") | {"checkpoint": checkpoint})
    job.until_ready("2/2", "2/2")
    until(lambda: newest_checkpoint(job) > 0)
    uids = job.uids()
    until(lambda: newest_point(job) != {})
    step, lives = newest_checkpoint(job), {point["run"] for point in curve(job)}
    job.kill("learner-1")
    job.until(
        lambda status: (
            (status["phase"], status["learner"]["summary"], status["learner"]["restarts"])
            == ("Restarting", "1/2", 1)
        ),
        "restarting",
    )
    after = job.until_ready("2/2", "2/2")
    until(
        lambda: (
            (point := newest_point(job)) != {}
            and point["run"] not in lives
            and point["environmentSteps"] > step
        )
    )

    assert next(point for point in curve(job) if point["run"] not in lives)["environmentSteps"] >= step
    assert (after["learner"]["restarts"], after["sampler"]["restarts"]) == (1, 0)
    assert (after["failures"], after["disruptions"]) == (0, 1)
    assert job.uids() == uids


@at_once
def test_the_first_holders_pod_is_created_again_and_finishes_the_run(team: Team) -> None:
    team.cluster.need_local("it reads the files of a volume")
    job = Job(team, "holders")
    job.until_ready("2/2", "2/2")
    until(lambda: newest_point(job) != {})
    life = newest_point(job)["run"]
    team.kubectl("delete", "pod", f"{job.name}-learner-0", "--grace-period=1")
    # Set the goal only now: where kubectl is slow, the run would end before its pod is deleted.
    job.until(lambda status: status["learner"]["restarts"] > 1, "counted")
    job.patch({"stop": {"environmentSteps": (goal := job.steps + MORE_STEPS)}})
    status = job.until_phase("Succeeded")
    assert status["progress"]["environmentSteps"] >= goal
    assert (status["learner"]["restarts"], status["sampler"]["restarts"]) == (2, 0), job.events()
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
    for _ in every(0.2):
        if holds():
            return
    raise AssertionError("it never happened")


def curve(job: Job) -> list[Json]:
    """The curve that the first learner has written. It is newer than the status, and its last line may be incomplete."""
    return [json.loads(line) for line in (job.volume() / "progress.jsonl").read_text().split("\n")[:-1]]


def newest_point(job: Job) -> Json:
    """Returns the newest point, or an empty dictionary while there is none.

    There is none after the learners have rolled back to a checkpoint that is older than the curve.
    """
    return (curve(job) or [{}])[-1]


def newest_checkpoint(job: Job) -> int:
    """Returns the newest checkpoint's environment steps, or 0 without a checkpoint."""
    found = (job.volume() / "checkpoints").glob("step-*")
    return max((int(path.name.removeprefix("step-")) for path in found), default=0)
