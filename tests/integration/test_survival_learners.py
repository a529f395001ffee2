"""Learners of a running job are killed or stopped, and restart from the newest available state."""

from __future__ import annotations

import asyncio
import re
import signal

import pytest
from rltraining_api.contract import METRICS_PATH
from small_jobs import WITH_REPLAY, job_of, replay_job, small_job
from training import LEARNER, OTHER_LEARNER, SAMPLERS, Run, Train, eventually, step_of
from transport_processes import GRACE_SECONDS

IDLE_SECONDS = 0.6
"""Time that a learner must have waited for data: more than two of its waits."""


@pytest.mark.parametrize("algorithm", ["impala", "a3c", "ppo", "ppoAtSamplers", *WITH_REPLAY])
def test_a_killed_learner_continues_from_its_checkpoint_with_the_samplers_that_it_had(
    train: Train, algorithm: str
) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        checkpoint = await run.until_newer_checkpoint()
        pids, before = run.running(*SAMPLERS), run.point
        run.kill(LEARNER)
        fresh = await run.until_another_life(before["run"])

        assert fresh["environmentSteps"] >= checkpoint > 0
        assert fresh["updates"] > 0
        await eventually(lambda: run.point["updates"] > before["updates"])
        run.check_never_falls("environmentSteps", "updates", "episodes")
        if algorithm == "ppo":
            run.check_never_falls("unrolls/pushed", "unrolls/used")
        if algorithm in ("a3c", "ppoAtSamplers"):
            run.check_never_falls("gradients/pushed", "gradients/applied")
        if algorithm == "a3c":
            check_one_gradient_an_update(run)
        if algorithm in WITH_REPLAY:
            await eventually(lambda: run.point["replay/shards"] == 2)
            points = len(run.points)  # the steps of a shard may be in the point after it
            await eventually(lambda: len(run.points) > points)
            last = run.point
            assert last["replay/size"] >= before["replay/size"], "the shards were found again as they were"
            assert last["environmentSteps"] >= before["environmentSteps"], "samplers report what they did"
            assert last["replay/inserted"] >= before["replay/inserted"]
            assert (last["replay/restarted"], last["replay/lost"]) == (0, 0)
        assert "resumed from checkpoint" in run.log(LEARNER)
        assert run.running(*SAMPLERS) == pids
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts) == (0, 1)
        assert (status.failures, status.disruptions) == (0, 1)

    train(job_of(algorithm), scenario)


def test_a_learner_that_is_back_before_its_samplers_adds_no_point_to_the_curves(train: Train) -> None:
    async def scenario(run: Run) -> None:
        async def has_waited() -> bool:
            answer = await run.get(METRICS_PATH, "")
            assert answer is not None
            found = re.search(
                r"^rltraining_learner_wait_seconds_total (\S+)", answer.body.decode(), re.MULTILINE
            )
            assert found, answer.body
            return float(found[1]) > IDLE_SECONDS

        await run.until_learning()
        checkpoint = await run.until_checkpoint()
        await run.freeze(*SAMPLERS)
        life = run.point["run"]
        run.kill(LEARNER)
        await run.until(lambda job: job.status.learner.restarts == 1 and run.pod(LEARNER).ready)
        while not await has_waited():
            await asyncio.sleep(0.05)
        lives = {point["run"] for point in run.points}
        assert lives <= {life}, "the last life's points after the checkpoint are void"

        run.thaw(*SAMPLERS)
        assert (await run.until_another_life(life))["environmentSteps"] > checkpoint
        await run.finish()

    train(small_job(sampler={"replicas": 2}), scenario)


def test_sigterm_ends_a_learner_after_a_checkpoint(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        steps = await run.until_steps()
        assert not run.checkpoints()
        run.kill(LEARNER, signal.SIGTERM)
        await run.until(lambda job: job.status.learner.restarts == 1, GRACE_SECONDS)
        assert step_of(run.checkpoints()[-1]) >= steps
        await run.until_ready()
        assert run.steps >= steps
        await run.until_steps()
        end = run.event("Disrupted")
        assert end is not None
        assert end.endswith("exit code 143 (SIGTERM): the process was asked to end")

    train(small_job(checkpoint={"everySeconds": 3600}), scenario)


def test_a_replay_role_without_a_checkpoint_starts_over_with_the_shards_as_they_are(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        await run.until_steps(4_000)
        before = run.point
        run.kill(LEARNER)

        first = await run.until_another_life(before["run"])
        assert run.points[0] == first
        assert first["environmentSteps"] < before["environmentSteps"], "steps are those of this learner"
        await eventually(lambda: run.point["replay/shards"] == 2)
        await eventually(lambda: run.point["environmentSteps"] >= first["environmentSteps"] + 2_000)
        last = run.point
        assert last["updates"] > 0
        assert last["replay/inserted"] > before["replay/inserted"], "shards were found as they were"
        assert last["replay/sampled"] < last["environmentSteps"] + 2_500, "no draws are made up for"
        await run.finish()

    train(replay_job(replay={"samplesPerInsert": 1.0}, checkpoint={"everySeconds": 600}), scenario)


@pytest.mark.parametrize("algorithm", ["impala", "dqnApex", "sac", "td3", "a2c", "ppo", "ppoAtSamplers"])
def test_two_learners_share_the_work_and_outlive_each_other(train: Train, algorithm: str) -> None:
    def groups(run: Run) -> int:
        """How often the two have formed a group."""
        return run.log(LEARNER).count("learners 0, 1")

    async def scenario(run: Run) -> None:
        await run.until_learning()
        await eventually(lambda: groups(run) > 0)
        formed = groups(run)
        if algorithm == "impala":  # 16 steps of 8 environments from each learner's sampler
            first = run.point

            def of_the_other() -> float:
                steps, made = (run.point[name] - first[name] for name in ("environmentSteps", "updates"))
                return steps - 16 * 8 * made

            await eventually(lambda: of_the_other() > 10 * 16 * 8)

        # Learner 1 dies, and no update is lost.
        pids = run.running(LEARNER, *SAMPLERS)
        run.kill(OTHER_LEARNER)
        await run.until_updates(20)
        await run.until(lambda job: job.status.learner.restarts == 1)
        await eventually(lambda: groups(run) > formed)
        await run.until_updates(20)
        run.check_never_falls("updates")
        assert run.running(LEARNER, *SAMPLERS) == pids

        # Learner 0 dies, and restarts from the state of learner 1, not from the older checkpoint.
        await run.until_checkpoint()
        pids, before = run.running(OTHER_LEARNER, *SAMPLERS), run.point
        run.kill(LEARNER)
        assert (await run.until_another_life(before["run"]))["updates"] >= before["updates"]
        await run.until_updates(20)
        assert run.running(OTHER_LEARNER, *SAMPLERS) == pids
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts, status.failures) == (0, 2, 0)
        assert status.learner.summary == "0/2", "they end together"

    train(job_of(algorithm, learner={"replicas": 2}), scenario)


def test_steps_whose_updates_survive_in_another_learner_are_counted_after_a_restart(train: Train) -> None:
    async def scenario(run: Run) -> None:
        # Without a checkpoint, half of the steps are known to no other process than learner 0.
        await run.until_updates(60)
        before = run.point
        run.kill(LEARNER)
        await run.until_another_life(before["run"])
        await eventually(lambda: run.point["environmentSteps"] >= before["environmentSteps"])
        after = run.point
        assert before["updates"] <= after["updates"] < before["updates"] + 20, "as soon as both have reported"
        most = 2 * 16 * 8 * after["updates"]  # 16 steps of 8 environments from each learner's sampler
        assert after["environmentSteps"] <= most, "none is counted twice"
        await run.finish()

    job = small_job(learner={"replicas": 2}, sampler={"replicas": 2}, checkpoint={"everySeconds": 3600})
    train(job, scenario)


def check_one_gradient_an_update(run: Run) -> None:
    """Checks that A3C has applied one gradient per update, also after rollbacks."""
    assert all(point["gradients/applied"] == point["updates"] for point in run.points), run.points
