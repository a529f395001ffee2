"""Runs of `spec.reproducible`: the same parameters, bit for bit, with any number of samplers and after failures."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from rltraining_api.job import RLTrainingJob
from rltraining_trainer.metrics.hash_chain import HASHES
from small_jobs import CODE, GRADIENTS, code, small_job
from training import LEARNER, OTHER_SAMPLER, SAMPLER, Run, Train, eventually

REPLAY = {"batchSize": 32, "parameterRefreshSteps": 8, "nStep": 3}
SETTINGS: dict[str, dict[str, Any]] = {
    "a2c": GRADIENTS["a2c"] | {"learningRateSchedule": "Constant"},
    "ppo": GRADIENTS["ppo"] | {"learningRateSchedule": "Constant"},
    "impala": {"unrollLength": 16, "learningRateSchedule": "Constant"},
    "dqnApex": REPLAY | {"replay": {"minimum": 300, "samplesPerInsert": 4, "capacity": 2000}},
    "ddpgApex": REPLAY | {"replay": {"minimum": 300, "samplesPerInsert": 4}},
    "sac": REPLAY | {"replay": {"minimum": 300, "samplesPerInsert": 4, "kind": "Prioritized"}},
    "td3": REPLAY | {"replay": {"minimum": 300, "samplesPerInsert": 4}},
}
"""The settings of each algorithm."""
ENDLESS = {"environmentSteps": 10**12}
CARTPOLE = {"id": "PacedCartPole-v1", "numEnvs": 4}
PENDULUM = {"id": "PacedPendulum-v1", "numEnvs": 4}
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "a2c": CARTPOLE,
    "ppo": PENDULUM | {"normalize": {"observations": True, "rewards": True}},
    "impala": CARTPOLE,
    "dqnApex": CARTPOLE,
    "ddpgApex": PENDULUM,
    "sac": PENDULUM | {"normalize": {"observations": True}},
    "td3": PENDULUM,
}
RANDOM = """
import random

import gymnasium as gym


class Unseeded(gym.Wrapper):
    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        return observation + random.random(), info


gym.register("Unseeded-v0", entry_point=lambda: Unseeded(gym.make("CartPole-v1").unwrapped))
"""

Scenario = Callable[[Run], Awaitable[None]]


def reproducible_job(algorithm: str, samplers: int, **spec: Any) -> RLTrainingJob:
    fields = {
        "algorithm": {algorithm: SETTINGS[algorithm]},
        "environment": ENVIRONMENTS[algorithm],
        "sampler": {"replicas": samplers},
        "reproducible": {"blocks": 4, "hashEvery": 1, "takeOverSeconds": 0.2},
        "stop": ENDLESS,
    }
    return small_job(**(fields | spec))


def hashes(workdir: Path) -> list[dict[str, Any]]:
    """Returns the lines of the file with the hashes."""
    path = workdir / HASHES
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


class Runs:
    """Runs jobs, each in its own folder."""

    def __init__(self, train: Train) -> None:
        self._train, self._folder, self._count = train, train.workdir, 0

    def __call__(self, job: RLTrainingJob, scenario: Scenario | None = None) -> tuple[Any, ...]:
        """Runs a job until its stop rule or the scenario ends it.

        Returns the number of environment steps, the hashes, and the number and the mean return of episodes.
        """
        ends: list[RLTrainingJob] = []

        async def to_the_end(run: Run) -> None:
            if scenario is not None:
                await scenario(run)
                await run.finish()
            ends.append(await run.until_ended())

        self._count += 1
        self._train.workdir = self._folder / str(self._count)
        self._train(job, to_the_end)
        (ended,) = ends
        assert ended.status.phase == "Succeeded", ended.status.message
        found, progress = hashes(self._train.workdir), ended.status.progress
        assert [line["update"] for line in found] == list(range(1, len(found) + 1))
        return progress.environment_steps, found, progress.episodes, progress.mean_return


@pytest.fixture
def runs(train: Train) -> Runs:
    return Runs(train)


async def until_hashes(run: Run, more: int) -> None:
    """Waits for the hashes of N further updates."""
    goal = len(hashes(run.cluster.workdir)) + more
    await eventually(lambda: len(hashes(run.cluster.workdir)) >= goal)


@pytest.mark.parametrize("algorithm", SETTINGS)
def test_neither_kills_nor_the_number_of_samplers_change_the_result(runs: Runs, algorithm: str) -> None:
    async def disturb(run: Run) -> None:
        # The number of samplers changes, and so do the samplers of blocks.
        await run.until_learning()
        for samplers in (4, 2):
            await run.cluster.update_spec(run.key, {"sampler": {"replicas": samplers}})
            await run.until_size(1, samplers)
            await until_hashes(run, 5)
        await eventually(lambda: run.log(OTHER_SAMPLER).count("takes over") >= 2)

        # Another sampler takes over the blocks of a sampler that is killed: an update needs all blocks.
        run.runtime.starts.clear()
        run.kill(OTHER_SAMPLER)
        await eventually(lambda: run.cluster.pid(OTHER_SAMPLER) is None)
        await until_hashes(run, 5)
        run.runtime.starts.set()

        # The learner resumes from its checkpoint, and repeats the updates after it.
        await run.until_checkpoint()
        run.kill(LEARNER)
        await run.until(lambda job: job.status.learner.restarts == 1)
        await run.until_learning()

        # Both samplers are killed, and no process has their blocks.
        run.kill(SAMPLER)
        run.kill(OTHER_SAMPLER)
        await run.until(lambda job: job.status.sampler.restarts == 3)
        await until_hashes(run, 5)
        await eventually(lambda: len(hashes(run.cluster.workdir)) > 20)

    disturbed = runs(reproducible_job(algorithm, 1), disturb)
    found = [line["parametersHash"] for line in disturbed[1]]
    assert len(set(found)) == len(found) > 20
    assert runs(reproducible_job(algorithm, 1, stop={"environmentSteps": disturbed[0]})) == disturbed
    # Each kind of algorithm also has the same beginning if it has this number of samplers all the time.
    for samplers in (2, 4) if algorithm in ("ppo", "dqnApex") else ():
        beginning = runs(reproducible_job(algorithm, samplers, stop={"environmentSteps": 2800}))[1]
        assert beginning == disturbed[1][: len(beginning)]
        assert len(beginning) > 10


@pytest.mark.parametrize("algorithm", ["a2c", "ppo"])
def test_another_seed_gives_other_parameters(runs: Runs, algorithm: str) -> None:
    stop = {"environmentSteps": 1000}
    one, other = (runs(reproducible_job(algorithm, 1, stop=stop, seed=seed))[1] for seed in range(2))
    assert one[-1]["parametersHash"] != other[-1]["parametersHash"]


def test_an_environment_that_is_random_without_its_seed_is_named(train: Train) -> None:
    async def scenario(run: Run) -> None:
        job, _ = await run.until_failed()
        message = (
            "environment 'unseeded:Unseeded-v0' is not a function of its seed and its actions: the second time it gave "
            "another result at the first reset"
        )
        assert job.status.message is not None
        assert message in job.status.message

    environment = {"id": "unseeded:Unseeded-v0", "numEnvs": 2}
    train(reproducible_job("a2c", 1, environment=environment, code=CODE), scenario, code(unseeded=RANDOM))
