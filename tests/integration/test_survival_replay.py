"""Ape-X: a rate limiter between samplers and learner, shards that are saved, and shards outside the samplers."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_jobs import REPLAY, replay_job, role_with
from training import LEARNER, SAMPLER, SAMPLERS, Run, Train, eventually

BATCH, BLOCK = 64, (16 + 2) * 8
"""Transitions that an update samples, and that a sampler inserts together: 16 steps of 8 environments, and the two steps
before: their transitions of three steps are complete if all episodes end in the block."""


@pytest.mark.parametrize(
    ("ratio", "insertions"),
    [pytest.param(60.0, 500, id="samplers wait"), pytest.param(0.2, 3_000, id="the learner waits")],
)
def test_neither_side_runs_away(train: Train, ratio: float, insertions: int) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        before = run.point["replay/inserted"]
        await eventually(lambda: run.point["replay/inserted"] >= before + insertions)
        minimum = REPLAY["minimum"]
        bound = max(0.1 * ratio * minimum, 2 * BATCH)
        behind = bound + ratio * 2 * BLOCK  # each sampler may exceed its limit by a block
        for point in run.points:
            if point["updates"]:
                error = point["replay/sampled"] - (point["replay/inserted"] - minimum) * ratio
                assert -behind <= error <= bound, point
        await run.finish()

    train(replay_job(replay={"samplesPerInsert": ratio}), scenario)


def test_a_shard_that_is_saved_continues_with_what_it_had_and_a_warning_says_when_it_cannot_be(
    train: Train,
) -> None:
    def saved(run: Run, pod: str) -> list[Path]:
        return list(run.cluster.workdir.rglob(f"replay/{pod}/step-*/complete.json"))

    async def scenario(run: Run) -> None:
        await run.until_learning()
        await eventually(lambda: all(saved(run, name) for name in SAMPLERS))
        before = run.point["replay/size"]
        run.kill(SAMPLER)
        await run.until(lambda job: job.status.sampler.restarts == 1)
        await eventually(lambda: run.point["replay/restarted"] == 1)
        assert run.point["replay/size"] >= before / 2
        assert "the shard continues from" in run.log(SAMPLER)

        folder = run.cluster.workdir / "replay" / SAMPLER
        await run.until_ready()
        await run.freeze(SAMPLER)
        folder.rename(folder.with_name("elsewhere"))
        folder.write_text("in the way")
        run.thaw(SAMPLER)
        job = await run.until(lambda job: any("ShardNotSaved" in text for text in job.status.warnings))
        assert SAMPLER in job.status.warnings[0]
        await run.finish()

    train(replay_job(replay={"checkpoint": True}), scenario)


@pytest.mark.parametrize("placement", ["Learner", "Dedicated"])
def test_the_memory_may_lie_elsewhere_and_be_lost_there(train: Train, placement: str) -> None:
    async def scenario(run: Run) -> None:
        keeper = "demo-replay-0" if placement == "Dedicated" else LEARNER
        await run.until_learning()
        assert run.point["replay/shards"] == 1
        await run.until_checkpoint()
        incarnation = run.point["run"]
        run.kill(keeper)
        await eventually(lambda: run.point["replay/restarted"] == 1 and run.point["replay/shards"] == 1)
        assert (run.point["run"] == incarnation) == (placement == "Dedicated")
        await run.until_updates(1)
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
    learner = role_with(TEST_LINGER_SECONDS="4")  # three answers pass before the samplers ask it
    train(replay_job(replay=replay, stop={"environmentSteps": 3_000}, learner=learner), scenario)
