"""`rltrain chaos` reports disturbances that concern no process of the job."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rltraining.jobfile import load
from rltraining.trust.chaos import Chaos
from rltraining.trust.disturbances import parse, table


def test_a_role_without_processes_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def until(*_: object) -> None:
        pass

    job = load("cartpole-impala").job
    cluster: Any = SimpleNamespace(
        workdir=tmp_path,
        until=until,
        job=lambda _: job,
        pods=lambda _: [
            SimpleNamespace(name=f"cartpole-{role}-0", role=role) for role in ("learner", "sampler")
        ],
        pid=lambda _: None,
    )
    chaos = Chaos(parse(["replay=1s", "sampler=7s"], ["replay=1s"]))

    async def disturb() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(chaos.disturb(cluster, job.metadata), 0.01)  # type: ignore[arg-type]

    asyncio.run(disturb())
    assert capsys.readouterr().out == "00:00  chaos: the job has no process of the role replay\n"
    assert table(chaos.occurrences) == [
        "chaos: nothing was disturbed: the run ended first, or has no process of these roles"
    ]
