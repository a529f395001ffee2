"""What the tests of LocalCluster share: a job of trivial programs, run by the real engine in real processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import parse_job
from rltraining_operator.cluster import Key
from rltraining_operator.local import LOCAL_SETTINGS, Engine, LocalCluster, WarmRuntime

PROGRAM = "local_cluster_program:main"
SECONDS = 20.0
"""How long anything may take; nothing does."""


def trainer(
    container: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **env: str
) -> dict[str, Any]:
    """A role with this environment in its trainer container."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    merged = {"name": "trainer", "env": variables} | (container or {})
    return {"template": {"spec": {"containers": [merged]} | (pod or {})}}


def make_job(**spec: Any) -> RLTrainingJob:
    """A job named `demo`."""
    whole = {
        "algorithm": {"impala": {}},
        "environment": {"id": "CartPole-v1"},
        "stop": {"seconds": 10},
    } | spec
    header = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "demo"}}
    return parse_job(header | {"spec": whole})


@dataclass
class Run:
    """A running job."""

    cluster: LocalCluster
    key: Key

    @property
    def job(self) -> RLTrainingJob:
        return self.cluster.job(self.key)

    async def until(self, holds: Callable[[RLTrainingJob], bool]) -> RLTrainingJob:
        try:
            async with asyncio.timeout(SECONDS):
                return await self.cluster.until(self.key, holds)
        except TimeoutError:
            pods = [pod.raw["status"] for pod in self.cluster.pods(self.key)]
            raise AssertionError(f"in vain: {self.job.status} {pods} {self.reasons()}") from None

    async def until_phase(self, phase: str) -> RLTrainingJob:
        return await self.until(lambda job: job.status.phase == phase)

    async def until_ready(self, learners: int, samplers: int) -> RLTrainingJob:
        wanted = f"{learners}/{learners}", f"{samplers}/{samplers}"
        return await self.until(
            lambda job: (job.status.learner.summary, job.status.sampler.summary) == wanted
        )

    def reasons(self) -> list[str]:
        return [stored.event.reason for stored in self.cluster.events]


@asynccontextmanager
async def running(workdir: Path, job: RLTrainingJob) -> AsyncIterator[Run]:
    """The job, run by an engine; when the block is left nothing of it is alive."""
    async with LocalCluster(workdir, WarmRuntime(PROGRAM)) as cluster:
        engine = Engine(cluster, settings=LOCAL_SETTINGS)
        cluster.subscribe(engine.mark)
        work = asyncio.create_task(engine.run())
        try:
            yield Run(cluster, await cluster.submit(job))
        finally:
            engine.stop()
            await work


async def gone(pids: list[int]) -> None:
    """Return when none of these processes is alive; zombies are dead."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    while living := [process for pid in pids if (process := _living(pid))]:
        assert asyncio.get_running_loop().time() < deadline, f"still there: {living}"
        await asyncio.sleep(0.02)


def _living(pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return process if process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def on_python_path(monkeypatch: Any) -> None:
    """Let the template find the program."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
