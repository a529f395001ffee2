"""Processes for tests, forked from a process that has imported torch: runs of the trainer, and members for one test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from local_cluster_run import on_python_path
from soak import SOAK
from training import TRAINER, KeptWarm, Train
from transport_processes import Member, Start, Zygote
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from rltraining_trainer.transport import Endpoint

TOGETHER = {
    "test_distributed_replay_rpc",
    "test_learner_group",
    "test_metrics_scraped",
    "test_mlflow_server",
    "test_policy_programs",
    "test_transport",
    "test_transport_fuzz",
}
"""Modules with tests that share expensive processes or imports."""
HANG_SECONDS = 300 * SOAK
"""A test that takes longer hangs, however busy the machine is."""


class ByModuleOrTest(LoadScopeScheduling):
    """Gives whole modules of TOGETHER to a worker, and other tests one by one.

    The marks of `--dist loadgroup` would do the same, but pytest 9 ignores the test names that pytest-xdist 3.8 makes.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return module if Path(module).stem in TOGETHER else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByModuleOrTest:
    return ByModuleOrTest(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(HANG_SECONDS))


@pytest.fixture(scope="session")
def warm() -> Iterator[tuple[asyncio.Runner, KeptWarm]]:
    runtime = KeptWarm(TRAINER)
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        on_python_path(patch)
        runner.run(runtime.warm_up())
        yield runner, runtime
        runner.run(runtime.end())


@pytest.fixture
def train(warm: tuple[asyncio.Runner, KeptWarm], tmp_path: Path) -> Train:
    """Runs jobs in a folder `run` of the test."""
    return Train(*warm, tmp_path / "run")


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Forks members."""
    zygote = Zygote("members.py")
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


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """An endpoint of this process that only calls."""
    # Import torch only for the tests that use it: that takes seconds.
    from rltraining_trainer.transport import Endpoint
    from transport_members import TOKEN

    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    endpoint = Endpoint("test", TOKEN)
    endpoint.start()
    yield endpoint
    endpoint.stop()
