"""IMPALA on CartPole-v1, learning, over RPC, one learner and its samplers as processes of a LocalCluster.

Solved means: the mean return of the last 100 training episodes is at least 475, as the peers' runs were measured; the
example itself goes on for a while. Seconds count from the first unroll that
reaches the learner; collecting it took one unroll's time more, which is added.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from rltraining_api.manifest import load_manifest
from rltraining_operator.local import LOCAL_SETTINGS, Engine, LocalCluster, WarmRuntime

from tests.bench.table import print_table, thousands

MANIFEST = Path("examples/cartpole-impala.yaml")
EPISODES = 100
SUSTAINED = 10
PEERS = "peers on two cores: Sample Factory 14 k steps/s, 24 s; RLlib 10 k, 35 s; Machin 5 k, 42 s (easier criterion)"


@dataclass(frozen=True)
class Measured:
    seed: int
    solved: bool
    seconds: float
    steps: int
    lag: float
    shares: dict[str, float]
    """CPU time over wall time, by role."""
    bytes_per_step: float


def run(seeds: int) -> None:
    for samplers in (2, 1):
        print(f"{samplers} samplers\n" if samplers > 1 else "\n1 sampler\n")
        report(seeds, [f"sampler.replicas={samplers}", f"stop.meanReturn.episodes={EPISODES}"])
        print(f"going on for {SUSTAINED} s: {thousands(_sustained(samplers))} steps/s")
    print(f"\n{PEERS}")


def _sustained(samplers: int) -> float:
    """Steps a second of a run that is not stopped when it is solved: what the first, slower unrolls weigh is less."""
    overrides = ["stop.meanReturn=null", "stop.environmentSteps=1e9", f"stop.seconds={SUSTAINED}"]
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(_train(0, Path(folder), [f"sampler.replicas={samplers}", *overrides]))
    return result.steps / result.seconds


def report(seeds: int, overrides: Sequence[str]) -> None:
    """Train the manifest, changed by ``overrides``, with so many seeds, and print a line for each."""
    with tempfile.TemporaryDirectory() as folder:
        results = [asyncio.run(_train(seed, Path(folder) / str(seed), overrides)) for seed in range(seeds)]
    rows = [
        (
            result.seed,
            f"{result.seconds:.2f}" if result.solved else "never",
            f"{result.steps:,}",
            thousands(result.steps / result.seconds),
            f"{result.lag:.1f}",
            " ".join(f"{role} {share:.0%}" for role, share in result.shares.items()),
            f"{result.bytes_per_step:.0f}",
        )
        for result in results
    ]
    print_table(("seed", "s to 475", "steps to 475", "steps/s", "policy lag", "CPU", "bytes/step"), rows)
    seconds = [result.seconds if result.solved else float("inf") for result in results]
    rate = statistics.median(result.steps / result.seconds for result in results)
    print(
        f"\nmedian of {seeds}: {statistics.median(seconds):.2f} s to 475, {thousands(rate)} steps/s; "
        f"slowest seed {max(seconds):.2f} s"
    )


async def _train(seed: int, workdir: Path, overrides: Sequence[str]) -> Measured:
    job = load_manifest(MANIFEST, [f"seed={seed}", *overrides])
    runtime = WarmRuntime("rltraining_trainer.roles.main:main")
    async with LocalCluster(workdir, runtime) as cluster:
        engine = Engine(cluster, settings=LOCAL_SETTINGS)
        cluster.subscribe(engine.mark)
        running = asyncio.create_task(engine.run())
        key = await cluster.submit(job)
        await cluster.until(key, lambda job: job.status.phase in ("Running", "Succeeded", "Failed"))
        meter = _Meter({pod.name: cluster.pid(pod.name) for pod in cluster.pods(key)})
        sampled = asyncio.create_task(meter.watch())
        job = await cluster.until(key, lambda job: job.status.completion_time is not None)
        sampled.cancel()
        engine.stop()
        await running
    points = [json.loads(line) for line in (workdir / "progress.jsonl").read_text().splitlines()]
    last = points[-1]
    progress = job.status.progress
    unroll_seconds = last["seconds"] / max(1, last["unrolls/used"])
    return Measured(
        seed=seed,
        solved="meanReturn" in (job.status.message or ""),
        seconds=last["seconds"] + unroll_seconds,
        steps=progress.environment_steps,
        lag=progress.policy_lag or 0.0,
        shares=meter.shares(),
        bytes_per_step=meter.bytes_sent / max(1, progress.environment_steps),
    )


class _Meter:
    """CPU shares of the pods and bytes over the loopback device, from its making to the last look before they end."""

    def __init__(self, pids: dict[str, int | None]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items() if pid}
        self._start = self._last = (time.monotonic(), self._cpu(), self._bytes())

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            try:
                self._last = (time.monotonic(), self._cpu(), self._bytes())
            except psutil.NoSuchProcess:  # the first pod has ended: the run is over
                return

    @property
    def bytes_sent(self) -> int:
        return self._last[2] - self._start[2]

    def shares(self) -> dict[str, float]:
        wall = max(1e-9, self._last[0] - self._start[0])
        shares: dict[str, float] = {}
        for name, seconds in self._last[1].items():
            role = name.split("-")[-2]
            shares[role] = shares.get(role, 0.0) + (seconds - self._start[1][name]) / wall
        return shares

    def _cpu(self) -> dict[str, float]:
        times = {name: process.cpu_times() for name, process in self._processes.items()}
        return {name: spent.user + spent.system for name, spent in times.items()}

    def _bytes(self) -> int:
        return psutil.net_io_counters(pernic=True)["lo"].bytes_sent
