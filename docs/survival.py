"""A run of LunarLander-v3 in which processes are killed: docs/images/survival.svg, part of ``make pictures``.

python docs/survival.py
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rcParams
from matplotlib.figure import Figure
from rltraining_api.job import RLTrainingJob
from rltraining_operator.local import LOCAL_SETTINGS, Engine, LocalCluster, WarmRuntime

IMAGE = Path(__file__).parent / "images" / "survival.svg"
JOB = {
    "apiVersion": "rltraining.dev/v1alpha1",
    "kind": "RLTrainingJob",
    "metadata": {"name": "lander"},
    "spec": {
        "algorithm": {"ppo": {}},
        "environment": {"id": "LunarLander-v3"},
        "sampler": {"replicas": 2},
        "checkpoint": {"everySeconds": 5},
        "stop": {"environmentSteps": 400_000},
    },
}
KILLS = {60_000: "lander-sampler-1", 120_000: "lander-learner-0", 200_000: "lander-sampler-0"}
"""Pods that are killed, by the number of environment steps after which."""
COLORS = {"sampler": "#c77700", "learner": "#b3261e"}


@dataclass(frozen=True)
class Kill:
    pod: str
    time: float
    """Unix time in seconds."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        kills, job = asyncio.run(train(Path(folder)))
        lines = (Path(folder) / "progress.jsonl").read_text().splitlines()
    points = [point for point in map(json.loads, lines) if point["meanReturn"] is not None]
    draw(points, kills)
    print(f"{job.status.phase}: {job.status.message}; {len(kills)} kills, {job.status.restarts} restarts")


async def train(folder: Path) -> tuple[list[Kill], RLTrainingJob]:
    """Trains the job to its end and kills processes on the way."""
    kills: list[Kill] = []
    async with LocalCluster(folder, WarmRuntime("rltraining_trainer.roles.main:main")) as cluster:
        engine = Engine(cluster, settings=LOCAL_SETTINGS)
        cluster.subscribe(engine.mark)
        running = asyncio.create_task(engine.run())
        key = await cluster.submit(RLTrainingJob.model_validate(JOB))
        for steps, pod in KILLS.items():
            await cluster.until(key, lambda job, least=steps: job.status.progress.environment_steps >= least)
            kills.append(kill(cluster, pod))
        job = await cluster.until(key, lambda job: job.status.completion_time is not None)
        engine.stop()
        await running
    return kills, job


def kill(cluster: LocalCluster, pod: str) -> Kill:
    process = cluster.pid(pod)
    assert process is not None, f"{pod} does not run"
    os.kill(process, signal.SIGKILL)
    return Kill(pod, time.time())


def draw(points: list[dict[str, float]], kills: list[Kill]) -> None:
    """Draws the mean return over the time of day, and a line for each killed process."""
    rcParams["svg.hashsalt"] = "survival"  # the same data give the same file
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    begin = points[0]["time"] - points[0]["seconds"]
    axes.plot(
        [point["time"] - begin for point in points],
        [point["meanReturn"] for point in points],
        color="#00796b",
    )
    for dead in kills:
        role = dead.pod.split("-")[-2]
        axes.axvline(dead.time - begin, color=COLORS[role], linestyle="--", linewidth=1.2)
        label = f" kill -9 {role}"
        axes.text(dead.time - begin, 0.02, label, color=COLORS[role], transform=axes.get_xaxis_transform())
    axes.set_xlabel("seconds since the first data")
    axes.set_ylabel("mean return of 100 episodes")
    axes.set_title("LunarLander-v3, ppo: {}, two samplers, on two cores", fontsize="medium")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGE, metadata={"Date": None})


if __name__ == "__main__":
    main()
