"""Draws docs/images/elastic.svg, part of ``make pictures``: a run with 1, 8 and 2 samplers, and busy neighbours for a while.

python docs/elastic.py
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

from matplotlib import rcParams
from matplotlib.figure import Figure
from rltraining_api.job import RLTrainingJob
from rltraining_operator.local import LOCAL_SETTINGS, Engine, LocalCluster, WarmRuntime

IMAGE = Path(__file__).parent / "images" / "elastic.svg"
MODULE = """
import time

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv


class Simulator(CartPoleEnv):
    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


gym.register("Simulator-v0", entry_point=Simulator, max_episode_steps=500)
"""
"""CartPole with steps that take 2 ms, so that two cores carry eight samplers."""
JOB = {
    "apiVersion": "rltraining.dev/v1alpha1",
    "kind": "RLTrainingJob",
    "metadata": {"name": "elastic"},
    "spec": {
        "algorithm": {"impala": {"unrollLength": 16}},
        "environment": {"id": "elastic_simulator:Simulator-v0", "numEnvs": 4},
        "network": {"mlp": {"hiddenSizes": [64, 64]}},
        "sampler": {"replicas": 1},
        "stop": {"environmentSteps": 10**9},
    },
}
PHASES = ((1, 20.0), (8, 40.0), (2, 20.0))
"""Numbers of samplers, each with its duration in seconds."""
NEIGHBOUR = (35.0, 50.0)
"""When two busy processes run beside the job, in seconds."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "elastic_simulator.py").write_text(MODULE)
        os.environ["PYTHONPATH"] = folder
        began, sizes = asyncio.run(train(Path(folder) / "run"))
        lines = (Path(folder) / "run" / "progress.jsonl").read_text().splitlines()
    points = [point for point in map(json.loads, lines) if point["stepsPerSecond"] is not None]
    draw(points, began, sizes)
    last = points[-1]
    counts = {name: int(last[f"unrolls/{name}"]) for name in ("pushed", "used", "dropped", "queued")}
    assert counts["pushed"] == counts["used"] + counts["dropped"] + counts["queued"], counts
    print(", ".join(f"{name} {count:,}" for name, count in counts.items()))


async def train(folder: Path) -> tuple[float, list[tuple[float, int]]]:
    """Trains, changes the number of samplers, and ends the job.

    Returns the Unix time of the first data, and the number of running samplers since times in seconds.
    """
    async with LocalCluster(folder, WarmRuntime("rltraining_trainer.roles.main:main")) as cluster:
        engine = Engine(cluster, settings=LOCAL_SETTINGS)
        cluster.subscribe(engine.mark)
        running = asyncio.create_task(engine.run())
        key = await cluster.submit(RLTrainingJob.model_validate(JOB))
        await cluster.until(key, lambda job: job.status.progress.environment_steps > 0)
        began, sizes = time.time(), [(0.0, 1)]
        neighbour = asyncio.create_task(keep_busy(began))
        for samplers, seconds in PHASES:
            await cluster.update_spec(key, {"sampler": {"replicas": samplers}})
            until = time.time() + seconds
            while time.time() < until:
                ready = cluster.job(key).status.sampler.ready
                if ready != sizes[-1][1]:
                    sizes.append((time.time() - began, ready))
                await asyncio.sleep(0.1)
        await neighbour
        await cluster.delete_job(key)
        engine.stop()
        await running
    return began, sizes


async def keep_busy(began: float) -> None:
    """Runs two busy processes during NEIGHBOUR."""
    await asyncio.sleep(began + NEIGHBOUR[0] - time.time())
    processes = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(2)]
    for process in processes:
        process.start()
    await asyncio.sleep(began + NEIGHBOUR[1] - time.time())
    for process in processes:
        process.kill()


def _spin() -> None:
    while True:
        pass


def draw(points: list[dict[str, float]], began: float, sizes: list[tuple[float, int]]) -> None:
    """Draws the number of samplers, steps per second and the policy lag over time."""
    rcParams["svg.hashsalt"] = "elastic"  # the same data give the same file
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    samplers, speed, lag = figure.subplots(3, sharex=True)
    times = [point["time"] - began for point in points]
    samplers.step(
        [*(time for time, _ in sizes), times[-1]], [*(size for _, size in sizes), sizes[-1][1]], where="post"
    )
    samplers.set_ylabel("samplers")
    speed.plot(times, [point["stepsPerSecond"] for point in points], color="#00796b")
    speed.set_ylabel("steps/s")
    speed.set_ylim(bottom=0)
    lag.plot(times, [point["policyLag"] for point in points], color="#00796b", label="mean")
    lag.plot(times, [point["policyLag/p99"] for point in points], color="#c77700", label="99th percentile")
    lag.set_ylabel("policy lag")
    lag.set_ylim(bottom=0)
    lag.legend(loc="upper left", fontsize="small", ncols=3)
    lag.set_xlabel("seconds since the first data")
    for axes in (samplers, speed, lag):
        axes.axvspan(*NEIGHBOUR, color="#999999", alpha=0.2, linewidth=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    samplers.text(NEIGHBOUR[0] + 0.5, 1, "two busy processes", fontsize="small")
    figure.savefig(IMAGE, metadata={"Date": None})


if __name__ == "__main__":
    main()
