"""Samplers of a running job are killed, blocked, frozen and stopped. Training continues, and they rejoin."""

from __future__ import annotations

import signal

import pytest
from small_jobs import WITH_REPLAY, gradient_job, job_of, replay_job, role_with, small_job
from soak import SOAK
from training import LEARNER, SAMPLER, SAMPLERS, Run, Train, eventually
from transport_processes import GRACE_SECONDS

KILLS = 4 * SOAK
"""Scaled by SOAK, which `make soak` sets."""
STEADY_FILES = 8
STEADY_BYTES = 30 << 20
"""Limit on the growth of the learner's memory from the first kill to the last."""
AGGREGATE = {
    "Async": {"mode": "Async", "count": 1, "maxPolicyLag": 10},
    "Sync": {"mode": "Sync", "count": None, "deadlineSeconds": 0.1},
}


@pytest.mark.parametrize("algorithm", ["impala", "a3c", "ppo", "ppoAtSamplers", *WITH_REPLAY])
def test_killed_samplers_hold_nobody_up_and_come_back(train: Train, algorithm: str) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        if algorithm in WITH_REPLAY:
            await eventually(lambda: run.point["replay/shards"] == 2)
        learner = run.process(LEARNER)
        files = learner.num_fds()
        resident = 0
        for number in range(KILLS):
            if number == 1:
                resident = learner.memory_info().rss
            victim = SAMPLERS[number % 2]
            run.runtime.starts.clear()
            run.kill(victim)
            await eventually(lambda victim=victim: run.cluster.pid(victim) is None)
            await run.until_updates(10)  # while the victim is down
            run.runtime.starts.set()
            await run.until(lambda job, goal=number + 1: job.status.sampler.restarts == goal)
            await run.until(lambda job, victim=victim: run.pod(victim).ready)
            if algorithm in WITH_REPLAY:
                await eventually(lambda goal=number + 1: run.point["replay/restarted"] == goal)

        if algorithm in WITH_REPLAY:
            await eventually(lambda: run.point["replay/shards"] == 2)
            assert run.point["replay/lost"] > 0
        await run.until_updates(10)
        assert learner.num_fds() - files <= STEADY_FILES
        assert learner.memory_info().rss - resident <= STEADY_BYTES
        assert run.process(LEARNER) == learner
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts) == (KILLS, 0)
        assert (status.failures, status.disruptions) == (0, KILLS)

    aggregate = {"aggregate": {"deadlineSeconds": 0.3}} if algorithm.startswith("ppo") else {}
    train(job_of(algorithm, **aggregate), scenario)


@pytest.mark.parametrize("algorithm", ["impala", "ppo", "ppoAtSamplers"])
def test_samplers_get_a_changed_template_one_after_the_other(train: Train, algorithm: str) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        before = [run.process(pod) for pod in (LEARNER, *SAMPLERS)]
        container = {"name": "trainer", "env": [{"name": "LEVEL", "value": "2"}]}
        template = {"spec": {"containers": [container]}}
        await run.cluster.update_spec(run.key, {"sampler": {"template": template}})
        await run.until(lambda _: run.event("AllSamplersUpdated"))
        await run.until_updates(10)
        learner, *samplers = [run.process(pod) for pod in (LEARNER, *SAMPLERS)]
        assert learner == before[0]
        assert not set(samplers) & set(before)
        first, second = (run.pod(pod).created for pod in SAMPLERS)
        assert first > second
        assert run.job.status.sampler.updated == 2
        status = (await run.finish()).status
        assert (status.restarts, status.failures, status.disruptions) == (0, 0, 0)

    aggregate = {"aggregate": {"deadlineSeconds": 0.3}} if algorithm.startswith("ppo") else {}
    train(job_of(algorithm, **aggregate), scenario)


@pytest.mark.parametrize(
    ("mode", "gradients"), [("Async", "Samplers"), ("Sync", "Samplers"), ("Sync", "Learner")]
)
def test_a_delayed_sampler_does_not_block_the_others(train: Train, mode: str, gradients: str) -> None:
    """The sampler's gradient or rollout arrives too late and is counted as stale."""
    stale = f"{'unrolls' if gradients == 'Learner' else 'gradients'}/stale"

    async def scenario(run: Run) -> None:
        await run.until_learning()
        await run.hold(SAMPLER)
        before = run.point[stale]
        await run.until_updates(25)
        run.release(SAMPLER)
        await eventually(lambda: run.point[stale] > before)
        await run.finish()

    train(gradient_job("a3c", aggregate=AGGREGATE[mode], gradients=gradients), scenario)


def test_a_shard_that_is_frozen_is_left_out_and_comes_back(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        await eventually(lambda: run.point["replay/shards"] == 2)
        await run.freeze(SAMPLER)
        await eventually(lambda: run.point["replay/shards"] == 1)
        await run.until_updates(100)  # would take minutes if each waited for the frozen one
        assert run.point["replay/shards"] == 1
        run.thaw(SAMPLER)
        await eventually(lambda: run.point["replay/shards"] == 2)
        assert (run.point["replay/restarted"], run.point["replay/lost"]) == (0, 0), "nothing of it was lost"
        status = (await run.finish()).status
        assert status.sampler.restarts == 0

    train(replay_job(replay={"samplesPerInsert": None}), scenario)


def test_sigterm_ends_a_sampler_whatever_its_environment_does(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        run.kill(SAMPLER, signal.SIGTERM)
        await run.until(lambda job: job.status.sampler.restarts == 1, GRACE_SECONDS)
        await run.until_ready()
        await run.hold(SAMPLER)
        run.kill(SAMPLER, signal.SIGTERM)
        told = await run.until(lambda job: job.status.sampler.restarts == 2, GRACE_SECONDS)
        assert told.status.failures == 0
        ends = [known.event.message for known in run.cluster.events if known.event.reason == "Disrupted"]
        assert [end.partition(": ")[2] for end in ends] == [
            "exit code 143 (SIGTERM): the process was asked to end",
            "exit code 143 (SIGTERM)",
        ]

    train(small_job(sampler=role_with(2, TEST_SAMPLER_GRACE_SECONDS="5")), scenario)
