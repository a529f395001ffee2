"""Compares the useful steps of a job while its processes are killed with those while they are not.

With a mean lifetime of one day, a thousand spot instances lose one every 86 s; with two hours, one
every 7 s. The learner is killed rarely and resumes from its newest checkpoint. The steps since that
checkpoint are not useful and are not counted twice. Recovery is the time from the kill until the pod
is ready again. Its distribution is printed for each role.

The speed of a shared machine changes by several percent within minutes. So one job with two samplers
trains all the time, and short blocks with and without kills take turns. A round has each kind of block
twice, in one order and then in the reverse one, and is compared with its own blocks without kills.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rltraining.trust.chaos import Chaos
from rltraining.trust.disturbances import Disturbance, Occurrence
from rltraining_api.manifest import load_manifest
from rltraining_operator.cluster import Key
from rltraining_operator.local import LOCAL_SETTINGS, Engine, LocalCluster, WarmRuntime

from tests.bench.table import PERCENTILES, distribution, print_table, thousands

MANIFEST = Path("examples/cartpole-impala.yaml")
BLOCK_SECONDS, PAUSE_SECONDS = 20.0, 2.0
"""Length of a block, and of the pause after it, in which the last process that was killed recovers."""
SAMPLERS = 2
OVERRIDES = (
    f"sampler.replicas={SAMPLERS}",
    "stop.meanReturn=null",
    "stop.environmentSteps=1e12",
    "checkpoint.everySeconds=5",
)
SAMPLER_OF_A_DAY, SAMPLER = Disturbance("kill", "sampler", 86.0), Disturbance("kill", "sampler", 7.0)
LEARNER = Disturbance("kill", "learner", 60.0)
NONE = "none"
BLOCKS = {
    NONE: (),
    "a sampler every 86 s": (SAMPLER_OF_A_DAY,),
    "a sampler every 7 s": (SAMPLER,),
    "a sampler every 7 s, the learner every 60 s": (SAMPLER, LEARNER),
}


@dataclass
class Outcome:
    """All blocks of one kind."""

    rates: list[float] = field(default_factory=list)
    """Useful steps per second of each round."""
    occurrences: list[Occurrence] = field(default_factory=list)


def run(seeds: int) -> None:
    """Prints the table after this many rounds of three minutes."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = asyncio.run(_train(max(2, seeds), Path(folder)))
    ideal = outcomes[NONE].rates
    print_table(
        (
            "deaths",
            "useful steps/s",
            "goodput",
            f"sampler: recoveries: {'/'.join(f'p{percent}' for percent in PERCENTILES)}/longest",
            "learner: the same",
        ),
        [
            (
                name,
                thousands(statistics.mean(outcome.rates)),
                _mean_and_error([rate / best for rate, best in zip(outcome.rates, ideal, strict=True)]),
                *(_times(outcome.occurrences, role) for role in ("sampler", "learner")),
            )
            for name, outcome in outcomes.items()
        ],
    )


def _mean_and_error(ratios: Sequence[float]) -> str:
    """Returns the mean of all rounds with its standard error."""
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    return f"{statistics.mean(ratios):.1%} ± {error:.1%}"


def _times(occurrences: Sequence[Occurrence], role: str) -> str:
    times = [each.recovery_seconds for each in occurrences if each.role == role]
    return distribution([each for each in times if each is not None])


async def _train(rounds: int, folder: Path) -> dict[str, Outcome]:
    """Trains one job during all rounds."""
    outcomes = {name: Outcome() for name in BLOCKS}
    async with LocalCluster(folder, WarmRuntime("rltraining_trainer.roles.main:main")) as cluster:
        # Start the job, and wait until it learns.
        engine = Engine(cluster, settings=LOCAL_SETTINGS)
        cluster.subscribe(engine.mark)
        running = asyncio.create_task(engine.run())
        key = await cluster.submit(load_manifest(MANIFEST, OVERRIDES))
        await cluster.until(
            key, lambda job: job.status.phase == "Running" and bool(job.status.progress.environment_steps)
        )
        # Measure the blocks of each round.
        progress = Progress(cluster, key)
        watching = asyncio.create_task(progress.watch())
        await asyncio.sleep(PAUSE_SECONDS)
        numbers = itertools.count()
        for _ in range(rounds):
            steps = dict.fromkeys(BLOCKS, 0.0)
            for name in (*BLOCKS, *reversed(BLOCKS)):
                chaos = Chaos(BLOCKS[name], quiet=True, seed=next(numbers))
                steps[name] += await _block(cluster, key, chaos, progress)
                outcomes[name].occurrences += chaos.occurrences
            for name, outcome in outcomes.items():
                outcome.rates.append(steps[name] / (2 * BLOCK_SECONDS))
        # End the job.
        watching.cancel()
        engine.stop()
        await running
    return outcomes


async def _block(cluster: LocalCluster, key: Key, chaos: Chaos, progress: Progress) -> float:
    """Returns the useful steps of one block."""
    begin = time.monotonic()
    disturbing = asyncio.create_task(chaos.disturb(cluster, key))
    with suppress(TimeoutError):
        async with asyncio.timeout(BLOCK_SECONDS):
            await disturbing
            await asyncio.sleep(BLOCK_SECONDS)  # without disturbances the first call ends immediately
    await asyncio.sleep(PAUSE_SECONDS)
    return progress.steps_at(begin + BLOCK_SECONDS) - progress.steps_at(begin)


class Progress:
    """The environment steps in a job's status over time."""

    def __init__(self, cluster: LocalCluster, key: Key) -> None:
        self._cluster, self._key = cluster, key
        self._times: list[float] = []
        self._steps: list[int] = []

    async def watch(self) -> None:
        """Records each change until it is cancelled."""
        while True:
            known = self._steps[-1] if self._steps else -1
            await self._cluster.until(
                self._key, lambda job, known=known: job.status.progress.environment_steps != known
            )
            self._times.append(time.monotonic())
            self._steps.append(self._cluster.job(self._key).status.progress.environment_steps)

    def steps_at(self, moment: float) -> float:
        """Returns the steps at a time, by linear interpolation. There must be changes before and after it."""
        after = bisect.bisect(self._times, moment)
        (start, end), (low, high) = (column[after - 1 : after + 1] for column in (self._times, self._steps))
        return low + (high - low) * (moment - start) / (end - start)
