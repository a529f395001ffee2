"""Ape-X under attack: shards and learners die, freeze and run ahead of each other; training goes on, and all is counted."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time

import pytest
from rltraining_api.status import ReplayStatus
from rltraining_trainer.dataflow.replay.requests import CALL_SECONDS
from training import LEARNER, SAMPLER, SAMPLERS, Run, Train, eventually, replay_job

KILL_PERIOD, KILLS = 2.0, 30
BACK_SECONDS = 2.0
WAIT_SECONDS = 0.5
"""The learner's longest wait for a batch while a shard is gone, but for one point of the curves in twenty: a connection that
breaks is known at once. On two cores it may have to wait for a core while a sampler starts; never as long as for a deadline."""
FROZEN_SECONDS = 20.0
FROZEN_WAIT_SECONDS = 3.0
"""And while one is frozen, which takes CALL_SECONDS to be known, once."""
STEADY_BYTES = 40 << 20


def memory(run: Run) -> ReplayStatus:
    found = run.job.status.replay
    assert found is not None, "nothing is reported of the replay memory"
    return found


def resident(run: Run) -> int:
    return sum(run.process(name).memory_info().rss for name in (LEARNER, *SAMPLERS))


async def until_learning(run: Run) -> None:
    await run.until_ready()
    await run.until(lambda job: job.status.progress.updates > 0 and memory(run).shards == 2)


@pytest.mark.timeout(150)
def test_samplers_killed_every_2_s_for_a_minute_hold_nobody_up(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        learner, first = run.process(LEARNER), len(run.points)
        for number in range(KILLS):
            victim, updates, began = SAMPLERS[number % 2], run.points[-1]["updates"], time.monotonic()
            run.kill(victim)
            await run.until(lambda job, goal=number + 1: job.status.sampler.restarts == goal)
            await run.until(lambda job, victim=victim: run.pod(victim).ready)
            assert time.monotonic() - began <= BACK_SECONDS, f"kill {number} of {victim}"
            await asyncio.sleep(began + KILL_PERIOD - time.monotonic())  # the period of the kills
            assert run.points[-1]["updates"] > updates

        await run.until(lambda job: memory(run).shards == 2)
        points = run.points[first:]
        assert len(points) > KILLS * KILL_PERIOD
        waits = sorted(point["learner/longestWait"] for point in points)
        assert waits[len(waits) * 19 // 20] <= WAIT_SECONDS, waits
        assert waits[-1] < CALL_SECONDS, waits
        assert points[-1]["replay/restarted"] == KILLS
        assert points[-1]["replay/lost"] > 0
        assert run.process(LEARNER) == learner
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts) == (KILLS, 0)
        assert (status.failures, status.disruptions) == (0, KILLS)

    train(replay_job(), scenario)


@pytest.mark.timeout(60)
def test_shards_outlive_the_learner_and_nothing_that_was_lived_is_forgotten(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        await run.until(lambda job: job.status.checkpoint is not None)
        pids = {name: run.cluster.pid(name) for name in SAMPLERS}
        before, incarnation = run.points[-1], run.points[-1]["run"]
        run.kill(LEARNER)

        await run.until(lambda job: job.status.learner.restarts == 1)
        await eventually(lambda: run.points[-1]["run"] != incarnation)
        await eventually(lambda: run.points[-1]["replay/shards"] == 2)
        await eventually(lambda: run.points[-1]["updates"] > before["updates"])

        after = run.points[-1]
        assert after["replay/size"] >= before["replay/size"], "the shards were found again as they were"
        assert after["environmentSteps"] >= before["environmentSteps"], (
            "samplers tell what they did meanwhile"
        )
        assert after["replay/inserted"] >= before["replay/inserted"]
        assert (after["replay/restarted"], after["replay/lost"]) == (0, 0)
        assert {name: run.cluster.pid(name) for name in SAMPLERS} == pids
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts) == (0, 1)

    train(replay_job(), scenario)


@pytest.mark.timeout(60)
def test_a_learner_without_a_checkpoint_begins_anew_at_once_with_the_shards_as_they_are(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        await run.until_steps(8_000)
        before = run.points[-1]
        run.kill(LEARNER)

        await eventually(lambda: [point for point in run.points if point["run"] != before["run"]])
        anew = run.points[0]
        await eventually(lambda: run.points[-1]["replay/shards"] == 2)
        assert anew["environmentSteps"] < 4_000, "steps are those of this learner"
        await eventually(lambda: run.points[-1]["environmentSteps"] >= anew["environmentSteps"] + 2_000)
        last = run.points[-1]
        assert last["updates"] > 0
        assert last["replay/inserted"] > before["replay/inserted"], "shards were found as they were"
        assert last["replay/sampled"] < last["environmentSteps"] + 2_500, "no draws are made up for"
        await run.finish()

    train(replay_job(replay={"samplesPerInsert": 1.0}, checkpoint={"everySeconds": 600}), scenario)


@pytest.mark.timeout(90)
def test_a_sampler_that_freezes_for_20_s_costs_one_deadline_and_its_shard_comes_back(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        first, began = len(run.points), time.monotonic()
        run.kill(SAMPLER, signal.SIGSTOP)
        await eventually(lambda: run.points[-1]["replay/shards"] == 1)
        updates = run.points[-1]["updates"]
        await asyncio.sleep(began + FROZEN_SECONDS - time.monotonic())
        assert run.points[-1]["replay/shards"] == 1
        assert run.points[-1]["updates"] > updates + 100, "the others go on"
        run.kill(SAMPLER, signal.SIGCONT)

        await eventually(lambda: run.points[-1]["replay/shards"] == 2)
        frozen = [point["learner/longestWait"] for point in run.points[first:]]
        assert max(frozen) <= FROZEN_WAIT_SECONDS, frozen
        assert sum(wait > WAIT_SECONDS for wait in frozen) <= 2, frozen
        last = run.points[-1]
        assert (last["replay/restarted"], last["replay/lost"]) == (0, 0), "nothing of it was lost"
        status = (await run.finish()).status
        assert status.sampler.restarts == 0

    train(replay_job(), scenario)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "ratio", [pytest.param(60.0, id="samplers wait"), pytest.param(0.2, id="the learner waits")]
)
def test_neither_side_runs_away(train: Train, ratio: float) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        await run.until_steps(3_000)
        before, resident_before = run.points[-1], resident(run)
        await asyncio.sleep(6.0)
        after, resident_after = run.points[-1], resident(run)

        inserted = after["replay/inserted"] - before["replay/inserted"]
        sampled = after["replay/sampled"] - before["replay/sampled"]
        assert after["updates"] > before["updates"]
        assert inserted > 0
        allowance = max(0.1 * ratio * 500, 2 * 64)  # of the rate limiter, either way
        assert abs(sampled - ratio * inserted) <= 2 * allowance + 0.1 * sampled, (inserted, sampled)
        assert resident_after - resident_before < STEADY_BYTES
        await run.finish()

    train(replay_job(replay={"samplesPerInsert": ratio}), scenario)


@pytest.mark.timeout(60)
def test_a_shard_that_is_saved_goes_on_with_what_it_had(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        await eventually(lambda: all(saved_shards(run, name) for name in SAMPLERS))
        before = run.points[-1]["replay/size"]
        run.kill(SAMPLER)
        await run.until(lambda job: job.status.sampler.restarts == 1)
        await eventually(lambda: run.points[-1]["replay/restarted"] == 1)

        last = run.points[-1]
        assert last["replay/size"] >= before / 2
        assert "the shard went on from" in (run.cluster.workdir / "logs" / f"{SAMPLER}.log").read_text()
        await run.finish()

    train(replay_job(replay={"checkpoint": True}), scenario)


@pytest.mark.timeout(60)
def test_a_shard_that_cannot_be_saved_is_told_of(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        folder = run.cluster.workdir / "replay" / SAMPLER
        await eventually(lambda: saved_shards(run, SAMPLER))
        shutil.rmtree(folder)
        folder.write_text("in the way")
        job = await run.until(lambda job: any("ShardNotSaved" in text for text in job.status.warnings))
        assert SAMPLER in job.status.warnings[0]
        await run.finish()

    train(replay_job(replay={"checkpoint": True}), scenario)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("placement", ["Learner", "Dedicated"])
def test_the_memory_may_lie_elsewhere_and_be_lost_there(train: Train, placement: str) -> None:
    async def scenario(run: Run) -> None:
        keeper = "demo-replay-0" if placement == "Dedicated" else LEARNER
        await run.until_ready()
        await run.until(lambda job: job.status.progress.updates > 0)
        assert memory(run).shards == 1
        await run.until(lambda job: job.status.checkpoint is not None)
        incarnation = run.points[-1]["run"]
        run.kill(keeper)
        await eventually(
            lambda: run.points[-1]["replay/restarted"] == 1 and run.points[-1]["replay/shards"] == 1
        )
        assert (run.points[-1]["run"] == incarnation) == (placement == "Dedicated")
        updates = run.points[-1]["updates"]
        await eventually(lambda: run.points[-1]["updates"] > updates)
        status = (await run.finish()).status
        assert status.sampler.restarts == 0
        assert status.failures == 0

    train(replay_job(replay={"placement": placement}), scenario)


def test_samplers_that_wait_for_a_replay_pod_hear_of_the_end_from_the_learner(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until(lambda job: job.status.phase == "Succeeded")
        logs = sorted((run.cluster.workdir / "logs").glob("demo-sampler-*.log"))
        assert len(logs) == 2
        for log in logs:
            assert " lost " not in log.read_text(), "the pod went before it had answered"

    replay = {"placement": "Dedicated", "samplesPerInsert": 16}
    train(replay_job(replay=replay, stop={"environmentSteps": 3_000}), scenario)


def saved_shards(run: Run, pod: str) -> list[object]:
    return list(run.cluster.workdir.rglob(f"replay/{pod}/step-*/complete.json"))
