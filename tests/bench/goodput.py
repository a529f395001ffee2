"""Useful steps of a run whose processes are killed, as a share of those of an undisturbed run.

A thousand spot instances with a mean life of a day lose one every 86 s; with a mean life of two hours, one every 7 s. The
learner is killed rarely, and resumes from its newest checkpoint: the steps since then are not useful and are not counted
twice. All runs last equally long, in turn, with two samplers on this machine. Recovery is the time from the kill until
the pod is ready again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from rltraining_api.manifest import load_manifest
from rltraining_operator.cluster import Key
from rltraining_operator.local import LOCAL_SETTINGS, Engine, LocalCluster, WarmRuntime

from tests.bench.table import print_table, thousands

MANIFEST = Path("examples/cartpole-impala.yaml")
SECONDS = 120.0
SAMPLERS = 2
OVERRIDES = (
    f"sampler.replicas={SAMPLERS}",
    "stop.meanReturn=null",
    "stop.environmentSteps=1e12",
    "checkpoint.everySeconds=5",
)
POLL_SECONDS = 0.02
NEVER = float("inf")


@dataclass(frozen=True)
class Kills:
    """Mean seconds between two deaths, by role."""

    sampler: float = NEVER
    learner: float = NEVER


@dataclass
class Outcome:
    steps: int = 0
    recoveries: dict[str, list[float]] = field(default_factory=lambda: {"sampler": [], "learner": []})
    """Seconds, by role."""


RUNS = {
    "none": Kills(),
    "a sampler every 86 s": Kills(sampler=86.0),
    "a sampler every 7 s": Kills(sampler=7.0),
    "a sampler every 7 s, the learner every 60 s": Kills(sampler=7.0, learner=60.0),
    "none, again": Kills(),
}


def run(seeds: int) -> None:
    found: dict[str, list[Outcome]] = {name: [] for name in RUNS}
    for seed, (name, kills) in itertools.product(range(max(1, seeds // 5)), RUNS.items()):
        with tempfile.TemporaryDirectory() as folder:
            found[name].append(asyncio.run(_train(kills, seed, Path(folder))))
    steps = {name: statistics.mean(outcome.steps for outcome in outcomes) for name, outcomes in found.items()}
    ideal = statistics.mean((steps["none"], steps["none, again"]))
    print_table(
        ("deaths", "useful steps/s", "goodput", "sampler: recoveries, median, longest", "learner: the same"),
        [
            (
                name,
                thousands(steps[name] / SECONDS),
                f"{steps[name] / ideal:.1%}",
                *(
                    _times([s for outcome in outcomes for s in outcome.recoveries[role]])
                    for role in ("sampler", "learner")
                ),
            )
            for name, outcomes in found.items()
        ],
    )


def _times(seconds: list[float]) -> str:
    return f"{len(seconds)}, {statistics.median(seconds):.1f} s, {max(seconds):.1f} s" if seconds else "0"


async def _train(kills: Kills, seed: int, folder: Path) -> Outcome:
    """Trains for a time that begins when all pods are ready. Steps are those of the status at its end."""
    outcome = Outcome()
    job = load_manifest(MANIFEST, [f"seed={seed}", *OVERRIDES])
    async with LocalCluster(folder, WarmRuntime("rltraining_trainer.roles.main:main")) as cluster:
        engine = Engine(cluster, settings=LOCAL_SETTINGS)
        cluster.subscribe(engine.mark)
        running = asyncio.create_task(engine.run())
        key = await cluster.submit(job)
        await cluster.until(
            key, lambda job: job.status.phase == "Running" and bool(job.status.progress.environment_steps)
        )
        before, begun = cluster.job(key).status.progress.environment_steps, time.monotonic()
        killers = [
            asyncio.create_task(_kill(cluster, key, role, mean, seed, outcome.recoveries[role]))
            for role, mean in (("sampler", kills.sampler), ("learner", kills.learner))
            if mean < NEVER
        ]
        await asyncio.sleep(SECONDS - (time.monotonic() - begun))
        outcome.steps = cluster.job(key).status.progress.environment_steps - before
        for killer in killers:
            killer.cancel()
        engine.stop()
        await running
    return outcome


async def _kill(
    cluster: LocalCluster, key: Key, role: str, mean: float, seed: int, times: list[float]
) -> None:
    """Kills a random pod of the role after exponentially distributed times, and notes how long each recovery takes."""
    randomness = random.Random(seed)
    while True:
        await asyncio.sleep(randomness.expovariate(1 / mean))
        name = randomness.choice([pod.name for pod in cluster.pods(key) if pod.role == role])
        process = cluster.pid(name)
        if process is None:  # still starting after the last kill
            continue
        os.kill(process, signal.SIGKILL)
        killed = time.monotonic()
        while cluster.pid(name) in (None, process) or not _ready(cluster, key, name):
            await asyncio.sleep(POLL_SECONDS)
        times.append(time.monotonic() - killed)


def _ready(cluster: LocalCluster, key: Key, name: str) -> bool:
    return any(pod.ready for pod in cluster.pods(key) if pod.name == name)
