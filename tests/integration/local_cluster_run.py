"""A job of trivial programs for LocalCluster's tests, run by the real engine in real processes."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import psutil
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import parse_job
from rltraining_operator.local import WarmRuntime
from training import SECONDS, Run, training

PROGRAM = "local_cluster_program:main"


def trainer(
    container: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **env: str
) -> dict[str, Any]:
    """Returns a role with this environment in its trainer container."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    merged = {"name": "trainer", "env": variables} | (container or {})
    return {"template": {"spec": {"containers": [merged]} | (pod or {})}}


def make_job(**spec: Any) -> RLTrainingJob:
    """Returns a job named `demo`."""
    whole = {
        "algorithm": {"impala": {}},
        "environment": {"id": "CartPole-v1"},
        "stop": {"seconds": 10},
    } | spec
    header = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "demo"}}
    return parse_job(header | {"spec": whole})


def running(workdir: Path, job: RLTrainingJob) -> AbstractAsyncContextManager[Run]:
    """Runs the job with a new `WarmRuntime`."""
    return training(workdir, WarmRuntime(PROGRAM), job)


async def gone(pids: list[int]) -> None:
    """Returns when none of these processes is alive. Zombies count as dead."""
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
