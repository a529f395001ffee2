"""Compares the useful steps of a run whose processes are killed with an undisturbed run.

With a mean lifetime of one day, a thousand spot instances lose one every 86 s; with two hours, one
every 7 s. The learner is killed rarely and resumes from its newest checkpoint. The steps since that
checkpoint are not useful and are not counted twice. All runs have the same duration, are run one
after the other, and use two samplers on this machine. Recovery is the time from the kill until the
pod is ready again.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rltraining.trust.chaos import Chaos
from rltraining.trust.disturbances import Disturbance, Occurrence
from rltraining_api.manifest import load_manifest
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


@dataclass
class Outcome:
    steps: int = 0
    occurrences: list[Occurrence] = field(default_factory=list)


SAMPLER_OF_A_DAY, SAMPLER = Disturbance("kill", "sampler", 86.0), Disturbance("kill", "sampler", 7.0)
LEARNER = Disturbance("kill", "learner", 60.0)
RUNS = {
    "none": (),
    "a sampler every 86 s": (SAMPLER_OF_A_DAY,),
    "a sampler every 7 s": (SAMPLER,),
    "a sampler every 7 s, the learner every 60 s": (SAMPLER, LEARNER),
    "none, again": (),
}


def run(seeds: int) -> None:
    found: dict[str, list[Outcome]] = {name: [] for name in RUNS}
    for seed, (name, disturbances) in itertools.product(range(max(1, seeds // 5)), RUNS.items()):
        with tempfile.TemporaryDirectory() as folder:
            found[name].append(asyncio.run(_train(disturbances, seed, Path(folder))))
    steps = {name: statistics.mean(outcome.steps for outcome in outcomes) for name, outcomes in found.items()}
    ideal = statistics.mean((steps["none"], steps["none, again"]))
    print_table(
        ("deaths", "useful steps/s", "goodput", "sampler: recoveries, median, longest", "learner: the same"),
        [
            (
                name,
                thousands(steps[name] / SECONDS),
                f"{steps[name] / ideal:.1%}",
                *(_times(outcomes, role) for role in ("sampler", "learner")),
            )
            for name, outcomes in found.items()
        ],
    )


def _times(outcomes: Sequence[Outcome], role: str) -> str:
    all_of_them = (each for outcome in outcomes for each in outcome.occurrences if each.role == role)
    seconds = [each.recovery_seconds for each in all_of_them if each.recovery_seconds is not None]
    return f"{len(seconds)}, {statistics.median(seconds):.1f} s, {max(seconds):.1f} s" if seconds else "0"


async def _train(disturbances: Sequence[Disturbance], seed: int, folder: Path) -> Outcome:
    """Trains for SECONDS after all pods are ready. Counts the steps in the final status."""
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
        chaos = Chaos(disturbances, quiet=True)
        disturbing = asyncio.create_task(chaos.disturb(cluster, key))
        await asyncio.sleep(SECONDS - (time.monotonic() - begun))
        outcome.steps = cluster.job(key).status.progress.environment_steps - before
        outcome.occurrences = chaos.occurrences
        disturbing.cancel()
        engine.stop()
        await running
    return outcome
