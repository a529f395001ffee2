"""Members of a running job are killed: training goes on, or goes on from the newest checkpoint."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import psutil
import pytest
from rltraining_operator.cluster import Key
from training import CODE, LEARNER, SAMPLER, SAMPLERS, Run, Train, code, eventually, small_job

KILL_PERIOD, KILLS = 3.0, 5
BACK_SECONDS = 3.0
WAIT_SECONDS = 0.1
"""The learner's longest wait for unrolls while a sampler is gone."""

SLOW = """
import time
import gymnasium as gym

class Slow(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        print("one step", flush=True)
        time.sleep(100)

gym.register("Slow-v0", entry_point=Slow)
"""


@pytest.mark.timeout(60)
def test_samplers_that_are_killed_every_3_s_come_back_and_hold_nobody_up(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_ready()
        await run.until_steps()
        learner = run.process(LEARNER)
        first = len(run.points)
        for number in range(KILLS):
            victim = SAMPLERS[number % 2]
            steps, began = run.steps, time.monotonic()
            run.kill(victim)
            await run.until(lambda job, goal=number + 1: job.status.sampler.restarts == goal)
            await run.until(lambda job, victim=victim: run.pod(victim).ready)
            assert time.monotonic() - began <= BACK_SECONDS, f"kill {number} of {victim}"
            await asyncio.sleep(began + KILL_PERIOD - time.monotonic())  # the period of the kills
            assert run.steps > steps

        waits = [point["learner/longestWait"] for point in run.points[first:]]
        assert len(waits) > KILLS * KILL_PERIOD
        assert max(waits) <= WAIT_SECONDS, waits
        assert run.process(LEARNER) == learner
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts) == (KILLS, 0)
        assert (status.failures, status.disruptions) == (0, KILLS)

    train(small_job(sampler={"replicas": 2}), scenario)


@pytest.mark.timeout(60)
def test_a_killed_learner_goes_on_from_its_newest_checkpoint_and_samplers_find_it(train: Train) -> None:
    seen: list[tuple[int, int, int]] = []

    async def scenario(run: Run) -> None:
        def look(_: Key) -> None:
            progress = run.job.status.progress
            seen.append((progress.environment_steps, progress.updates, progress.model_version))

        await run.until_ready()
        await run.until(lambda job: job.status.checkpoint is not None)
        await run.until_steps()
        pids = {name: run.cluster.pid(name) for name in SAMPLERS}
        before = run.job.status.progress
        incarnation = run.points[-1]["run"]
        checkpoint = newest_checkpoint(run.cluster.workdir)
        run.kill(LEARNER)
        run.cluster.subscribe(look)

        await run.until(lambda job: job.status.learner.restarts == 1)
        await run.until_ready()
        await run.until(lambda job: job.status.progress.model_version > before.model_version)
        await eventually(lambda: run.points[-1]["run"] != incarnation)

        steps, updates, versions = zip(*seen, strict=True)
        assert min(steps) >= checkpoint
        assert min(updates) > 0
        assert min(versions) > 0
        fresh = [point for point in run.points if point["run"] != incarnation]
        assert fresh[0]["environmentSteps"] > checkpoint
        curve = [point["environmentSteps"] for point in run.points]
        assert curve == sorted(curve)
        assert "went on from checkpoint" in (run.cluster.workdir / "logs" / f"{LEARNER}.log").read_text()

        assert {name: run.cluster.pid(name) for name in SAMPLERS} == pids
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts) == (0, 1)
        assert (status.failures, status.disruptions) == (0, 1)

    train(small_job(sampler={"replicas": 2}), scenario)


@pytest.mark.timeout(60)
def test_a_learner_that_is_back_before_its_samplers_adds_no_point_to_the_curves(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_ready()
        await run.until(lambda job: job.status.checkpoint is not None)
        for name in SAMPLERS:
            run.kill(name, signal.SIGSTOP)
        incarnation, checkpoint = run.points[-1]["run"], newest_checkpoint(run.cluster.workdir)
        run.kill(LEARNER)
        await run.until(lambda job: job.status.learner.restarts == 1)
        await run.until(lambda job: run.pod(LEARNER).ready)
        await asyncio.sleep(1.0)  # several times as long as it waits for a batch
        assert {point["run"] for point in run.points} == {incarnation}

        for name in SAMPLERS:
            run.kill(name, signal.SIGCONT)
        await eventually(lambda: run.points[-1]["run"] != incarnation)
        fresh = next(point for point in run.points if point["run"] != incarnation)
        assert fresh["environmentSteps"] > checkpoint
        await run.finish()

    train(small_job(sampler={"replicas": 2}), scenario)


@pytest.mark.timeout(60)
def test_sigterm_ends_a_sampler_within_a_second_and_a_learner_after_a_checkpoint(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_ready()
        await run.until_steps()
        await ends_within(1.0, run.kill(SAMPLER, signal.SIGTERM))
        told = await run.until(lambda job: job.status.sampler.restarts == 1)
        assert told.status.failures == 0
        await run.until_ready()

        steps = await run.until_steps()
        assert told.status.checkpoint is None
        await ends_within(5.0, run.kill(LEARNER, signal.SIGTERM))
        assert newest_checkpoint(run.cluster.workdir) >= steps
        await run.until(lambda job: job.status.learner.restarts == 1)
        await run.until_ready()
        assert run.steps >= steps
        await run.until_steps()
        ends = [known.event.message for known in run.cluster.events if known.event.reason == "Disrupted"]
        assert [end.partition(": ")[2] for end in ends] == [
            "exit code 143 (SIGTERM): the process was told to end"
        ] * 2

    train(small_job(checkpoint={"everySeconds": 3600}), scenario)


@pytest.mark.timeout(60)
def test_sigterm_ends_a_sampler_within_a_second_whatever_its_environment_does(train: Train) -> None:
    async def scenario(run: Run) -> None:
        log = run.cluster.workdir / "logs" / f"{SAMPLER}.log"
        await eventually(lambda: log.exists() and "one step" in log.read_text())
        await ends_within(1.0, run.kill(SAMPLER, signal.SIGTERM))
        told = await run.until(lambda job: job.status.sampler.restarts == 1)
        assert told.status.message == f"pod {SAMPLER}, container trainer: exit code 143 (SIGTERM)"

    train(small_job(code=CODE, environment={"id": "slow:Slow-v0"}), scenario, code(slow=SLOW))


def newest_checkpoint(workdir: Path) -> int:
    """Its step, in environment steps."""
    return max(
        int(path.parent.name.split("-")[1]) for path in workdir.glob("checkpoints/step-*/complete.json")
    )


async def ends_within(seconds: float, process: psutil.Process) -> None:
    began = time.monotonic()
    await eventually(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, seconds)
    assert time.monotonic() - began <= seconds
