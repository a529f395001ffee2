"""Processes for tests, all forks of one that has imported torch: runs of the trainer, and members that do as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_cluster_run import on_python_path
from training import TRAINER, KeptWarm, Train
from transport_processes import Member, Start, Zygote


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


@pytest.fixture(scope="module")
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    """Forks the members of a module of tests, whose `MEMBERS` names their program."""
    zygote = Zygote(request.module.MEMBERS)
    yield zygote
    zygote.close()


@pytest.fixture
def start(zygote: Zygote, tmp_path: Path) -> Iterator[Start]:
    """``start(role, *arguments)``: a new member, which is gone after the test."""
    members: list[Member] = []

    def begin(role: str, *arguments: Any) -> Member:
        members.append(Member(zygote, role, tmp_path / f"said-{len(members)}", arguments))
        return members[-1]

    yield begin
    for member in members:
        member.close()
