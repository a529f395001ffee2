"""One warm runtime for all tests that train: the trainer is imported once, and every process is a fork of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cluster_run import on_python_path
from training import TRAINER, KeptWarm, Train


@pytest.fixture(scope="session")
def warm() -> Iterator[tuple[asyncio.Runner, KeptWarm]]:
    runtime = KeptWarm(TRAINER)
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        on_python_path(patch)
        yield runner, runtime
        runner.run(runtime.end())


@pytest.fixture
def train(warm: tuple[asyncio.Runner, KeptWarm], tmp_path: Path) -> Train:
    """Runs jobs in the folder `run` of the test's own."""
    return Train(*warm, tmp_path / "run")
