"""A user's algorithm on the distributed replay and the trajectory queue, in real processes: it learns, and survives kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from rltraining_api.job import RLTrainingJob
from small_jobs import CODE, code, small_job
from training import LEARNER, SAMPLER, SAMPLERS, Run, Train, eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULES = code(distributed_dqn=(EXAMPLES / "distributed_dqn.py").read_text())
MANIFEST = yaml.safe_load((EXAMPLES / "cartpole-own-dqn.yaml").read_text())["spec"]


def dqn(**spec: Any) -> RLTrainingJob:
    """The example's manifest, with these fields of its spec replaced."""
    return small_job(**(MANIFEST | {"code": CODE, "checkpoint": {"everySeconds": 1}} | spec))


def test_the_distributed_dqn_learns_cartpole_and_leaves_a_policy(train: Train) -> None:
    stop = MANIFEST["stop"] | {"meanReturn": {"atLeast": 195, "episodes": 50}}

    async def scenario(run: Run) -> None:
        status = (await run.until_succeeded()).status
        assert status.message is not None
        assert "stop.meanReturn is met" in status.message
        assert status.replay is not None
        assert status.replay.shards == 2
        assert (run.cluster.workdir / "policy" / "policy.json").exists()

    train(dqn(stop=stop), scenario, MODULES)


def test_a_sampler_and_the_learner_of_the_distributed_dqn_are_killed(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()

        # A killed sampler restarts with an empty shard.
        run.kill(SAMPLER)
        await eventually(lambda: run.point["replay/restarted"] == 1 and run.point["replay/shards"] == 2)
        assert run.point["replay/lost"] > 0

        # A learner that is killed continues its counters, and uses the shards as they are.
        await run.until_updates(20)
        checkpoint = await run.until_newer_checkpoint()
        samplers, life = run.running(*SAMPLERS), run.point["run"]
        run.kill(LEARNER)
        fresh = await run.until_another_life(life)
        assert fresh["environmentSteps"] >= checkpoint > 0
        assert fresh["replay/restarted"] == 1
        await eventually(lambda: run.point["replay/shards"] == 2)
        await run.until_updates(20)
        assert run.running(*SAMPLERS) == samplers
        run.check_never_falls("updates", "environmentSteps")
        status = (await run.finish()).status
        assert (status.learner.restarts, status.sampler.restarts, status.failures) == (1, 1, 0)

    train(dqn(stop={"environmentSteps": 10**12}), scenario, MODULES)


QUEUE = """
import os
import time

def learner(world):
    queue = world.trajectories(capacity=2)
    run = world.run()
    newest = {}
    while run.active():
        items = queue.get(4)
        for item in items:
            assert item["number"] > newest.get(item["life"], 0), "an item was received twice"
            newest[item["life"]] = item["number"]
        if items:
            run.update(sum(item["steps"] for item in items))

def sampler(world):
    queue, number = world.trajectories(), 0
    world.start()
    while True:
        number += 1
        queue.put({"life": f"{world.name} {os.getpid()}", "number": number, "steps": 8})
        time.sleep(0.002)
"""


def test_items_of_a_queue_are_used_once_when_members_are_killed(train: Train) -> None:
    algorithm = {"entryPoint": {"module": "queue_of_items"}}
    job = small_job(algorithm=algorithm, code=CODE, sampler={"replicas": 2})

    async def scenario(run: Run) -> None:
        await run.until_learning()
        run.kill(SAMPLER)
        await run.until(lambda job: job.status.sampler.restarts == 1)
        checkpoint = await run.until_checkpoint()
        life = run.point["run"]
        run.kill(LEARNER)
        fresh = await run.until_another_life(life)
        assert fresh["environmentSteps"] >= checkpoint > 0
        await run.until_updates(20)
        for point in run.points:
            assert point["environmentSteps"] == 8 * 4 * point["updates"]
            assert point["unrolls/used"] >= 4 * point["updates"]
        assert (await run.finish()).status.failures == 0

    train(job, scenario, code(queue_of_items=QUEUE))
