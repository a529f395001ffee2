"""Runs of an example, learning, over RPC: its learner and samplers as processes of a LocalCluster.

Seconds count from the first data that reaches the learner.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from rltraining_api.manifest import load_manifest
from rltraining_operator.local import LOCAL_SETTINGS, Engine, LocalCluster, WarmRuntime


@dataclass(frozen=True)
class Measured:
    seed: int
    solved: bool
    """A rule about returns ended the run."""
    seconds: float
    steps: int
    last: dict[str, Any]
    """The last point of progress.jsonl."""
    shares: dict[str, float]
    """CPU time over wall time, by role."""
    bytes_per_step: float

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds

    @property
    def seconds_with_first_data(self) -> float:
        """Seconds since the samplers began to collect the first data that reached the learner, estimated."""
        return self.seconds * (1 + 1 / max(1, self.last.get("unrolls/used", self.last["updates"])))

    @property
    def cpu(self) -> str:
        return " ".join(f"{role} {share:.0%}" for role, share in self.shares.items())


TRAINER = "rltraining_trainer.roles.main:main"
"""The function of the processes of a run."""


def train(
    manifest: Path, seed: int, workdir: Path, overrides: Sequence[str], entry: str = TRAINER
) -> Measured:
    """Train a manifest, changed by ``overrides``, to its end."""
    return asyncio.run(_train(manifest, seed, workdir, overrides, entry))


async def _train(manifest: Path, seed: int, workdir: Path, overrides: Sequence[str], entry: str) -> Measured:
    job = load_manifest(manifest, [f"seed={seed}", *overrides])
    runtime = WarmRuntime(entry)
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
    last = json.loads((workdir / "progress.jsonl").read_text().splitlines()[-1])
    progress = job.status.progress
    return Measured(
        seed=seed,
        solved="Return is met" in (job.status.message or ""),
        seconds=last["seconds"],
        steps=progress.environment_steps,
        last=last,
        shares=meter.shares(),
        bytes_per_step=meter.bytes_sent / max(1, progress.environment_steps),
    )


class _Meter:
    """CPU shares of the pods and bytes over the loopback device, from construction until the pods end."""

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
