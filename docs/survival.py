"""A run of LunarLander-v3 in which processes are killed: docs/images/survival.svg, part of ``make pictures``.

python docs/survival.py

The picture is animated: the curve is drawn from left to right, and each kill appears when the curve reaches it. Without
animations, or with the setting for reduced motion, it is the complete picture.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
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
PERIOD_SECONDS, DRAWN_PERCENT = 12, 60
"""The animation's length, and the part of it in which the curve is drawn. The complete picture is shown in the rest."""
DARK = "@media (prefers-color-scheme: dark) { svg { filter: invert(.87) hue-rotate(180deg); } }"
"""Inverts the picture in the dark, in which each line keeps its hue, as docs/site.css does with other plots."""
PATH = r'(?<=<g id="{}">\n    <path )d="([^"]*)"'
"""The path of the element with this id."""


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
        gid="curve",
    )
    for number, dead in enumerate(kills):
        role = dead.pod.split("-")[-2]
        color, moment = COLORS[role], dead.time - begin
        axes.axvline(moment, color=color, linestyle="--", linewidth=1.2, gid=f"kill-{number}")
        where = {"transform": axes.get_xaxis_transform(), "gid": f"label-{number}"}
        axes.text(moment, 0.02, f" kill -9 {role}", color=color, **where)
    axes.set_xlabel("seconds since the first data")
    axes.set_ylabel("mean return of 100 episodes")
    axes.set_title("LunarLander-v3, ppo: {}, two samplers, on two cores", fontsize="medium")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGE, metadata={"Date": None})
    IMAGE.write_text(animated(IMAGE.read_text(), len(kills)))


def animated(svg: str, kills: int) -> str:
    """Adds the animation to a picture with the ids that `draw` sets."""
    # Find the part of the curve's length at which each kill appears.
    curve = _points(svg, "curve")
    lengths = [0.0]
    for start, end in pairwise(curve):
        lengths.append(lengths[-1] + math.dist(start, end))
    rules = [
        f"#curve path {{ stroke-dasharray: 1; animation: curve {PERIOD_SECONDS}s linear infinite; }}",
        f"@keyframes curve {{ 0% {{ stroke-dashoffset: 1; }} {DRAWN_PERCENT}%, 100% {{ stroke-dashoffset: 0; }} }}",
    ]
    for number in range(kills):
        moment = _points(svg, f"kill-{number}")[0][0]
        reached = next(length for (x, _), length in zip(curve, lengths, strict=True) if x >= moment)
        percent = f"{DRAWN_PERCENT * reached / lengths[-1]:.1f}%"
        rules += [
            f"#kill-{number}, #label-{number} {{ animation: kill-{number} {PERIOD_SECONDS}s step-end infinite; }}",
            f"@keyframes kill-{number} {{ 0% {{ opacity: 0; }} {percent}, 100% {{ opacity: 1; }} }}",
        ]
    # Give the curve the length 1, and add the rules to the style sheet.
    svg = re.sub(PATH.format("curve"), r'pathLength="1" d="\1"', svg)
    motion = "\n".join(["@media (prefers-reduced-motion: no-preference) {", *rules, "}"])
    return svg.replace("</style>", f"\n{motion}\n{DARK}\n</style>", 1)


def _points(svg: str, name: str) -> list[tuple[float, float]]:
    """Returns the points of the path of an element, which consists of straight lines."""
    match = re.search(PATH.format(name), svg)
    assert match is not None, f"there is no {name}"
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", match[1])]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


if __name__ == "__main__":
    main()
