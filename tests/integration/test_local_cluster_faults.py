"""LocalCluster under faults of processes, the template and the parent, and the resulting status."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from local_cluster_run import PROGRAM, gone, make_job, on_python_path, running, trainer
from rltraining_api.job import RLTrainingJob
from rltraining_operator.local import WarmRuntime, backoff
from rltraining_operator.local.runtime import Command

LONG = 1200.0
"""Seconds of a wait that would show as a hang."""


@pytest.fixture(autouse=True)
def _python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    on_python_path(monkeypatch)


def shell(script: str, **container: Any) -> dict[str, Any]:
    """Returns a role; its pods run a shell script."""
    return trainer({"command": ["/bin/sh", "-c", script]} | container)


def condition(job: RLTrainingJob, kind: str) -> tuple[str, str, str]:
    found = next(condition for condition in job.status.conditions if condition.type == kind)
    return found.status, found.reason, found.message


def test_kills_from_outside_are_healed_without_a_back_off_and_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "HASTY_SECONDS", 0.0)
    monkeypatch.setattr(backoff, "FIRST_SECONDS", LONG)

    async def scenario() -> None:
        async with running(tmp_path, make_job(sampler={"replicas": 2})) as run:
            await run.until_size(1, 2)
            learner = run.cluster.pid("demo-learner-0")
            run.kill("demo-sampler-1")
            await run.until(lambda job: job.status.sampler.restarts == 1)
            await run.until_size(1, 2)
            assert run.cluster.pid("demo-learner-0") == learner

            before = run.job.status.progress.environment_steps
            run.kill("demo-learner-0")
            down = await run.until(lambda job: job.status.learner.restarts == 1)
            assert down.status.phase == "Restarting"
            assert down.status.message == "pod demo-learner-0, container trainer: exit code 137 (SIGKILL)"
            up = await run.until(
                lambda job: job.status.phase == "Running" and job.status.progress.environment_steps > before
            )
            assert (up.status.disruptions, up.status.failures, up.status.restarts) == (2, 0, 2)

    asyncio.run(scenario())


def test_failures_back_off_count_and_end_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_SECONDS", 0.5)  # a fourth failure would be 2 s after the third
    job = make_job(sampler=shell("echo out of luck; exit 3"), runPolicy={"backoffLimit": 2})

    async def scenario() -> None:
        async with running(tmp_path, job) as run:
            started = time.monotonic()
            failed = await run.until_phase("Failed")
            assert time.monotonic() - started > 0.5 + 1.0
            assert failed.status.failures == failed.status.sampler.restarts == 3
            assert condition(failed, "Failed") == (
                "True",
                "BackoffLimitExceeded",
                "3 failures are more than runPolicy.backoffLimit 2; "
                "pod demo-sampler-0, container trainer: exit code 3: out of luck",
            )
            await run.until(lambda job: not run.cluster.pods(run.key))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("sampler", "reason", "message"),
    [
        (
            trainer(RAISE="KeyError: 'no such key'"),
            "UserCodeError",
            "demo-sampler-0: KeyError: 'no such key'",
        ),
        (shell("exit 64"), "PermanentFailure", "pod demo-sampler-0, container trainer: exit code 64"),
    ],
)
def test_a_permanent_failure_ends_the_job_without_a_back_off(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sampler: dict[str, Any],
    reason: str,
    message: str,
) -> None:
    monkeypatch.setattr(backoff, "FIRST_SECONDS", LONG)

    async def scenario() -> None:
        async with running(tmp_path, make_job(sampler=sampler)) as run:
            failed = await run.until_phase("Failed")
            assert condition(failed, "Failed") == ("True", reason, message)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (shell("kill -SEGV $$"), "exit code 139 (SIGSEGV)"),
        (shell("cannot-be-run"), "exit code 127"),
        (trainer({"command": ["/no/such/program"]}), "exit code 127: cannot execute '/no/such/program'"),
        (trainer({"resources": {"limits": {"memory": "64Mi"}}}, HOG_MIB="150"), "exit code 137 (OOMKilled)"),
    ],
    ids=["own signal", "shell", "no program", "memory"],
)
def test_failures_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(backoff, "FIRST_SECONDS", LONG)  # a second failure would be counted with the first
    job = make_job(sampler=sampler, runPolicy={"backoffLimit": 0})

    async def scenario() -> None:
        async with running(tmp_path, job) as run:
            failed = await run.until_phase("Failed")
            assert failed.status.failures == 1
            assert message in failed.status.message

    asyncio.run(scenario())


def test_who_ignores_sigterm_is_killed_with_all_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltraining_operator.local.cluster.GRACE_SECONDS", LONG)
    children = tmp_path / "children"
    sampler = shell(f"trap '' TERM; sleep 1000 & echo $! > {children}; while :; do wait; done")
    sampler["template"]["spec"]["terminationGracePeriodSeconds"] = 1

    async def scenario() -> None:
        async with running(tmp_path, make_job(sampler=sampler)) as run:
            await run.until(lambda job: children.exists() and bool(children.read_text()))
            pids = [run.cluster.pid("demo-sampler-0") or 0, int(children.read_text())]
            started = time.monotonic()
            await run.cluster.update_spec(run.key, {"runPolicy": {"suspend": True}})
            await run.until(lambda job: not run.cluster.pods(run.key))
            assert time.monotonic() - started >= 1
            await gone(pids)

    asyncio.run(scenario())


def test_a_killed_template_is_made_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, make_job()) as run:
            await run.until_size(1, 1)
            pids = [run.cluster.pid(pod.name) or 0 for pod in run.cluster.pods(run.key)]
            template = psutil.Process(pids[0]).parent()
            assert template is not None
            template.kill()
            await gone(pids)
            await run.until(lambda job: job.status.disruptions == 2)
            await run.until_size(1, 1)
            assert run.job.status.failures == 0

    asyncio.run(scenario())


PARENT = """
import asyncio, sys
from pathlib import Path
from local_cluster_run import make_job, running, trainer

async def main():
    script = "sleep 1000 & echo $!; wait"
    job = make_job(sampler=trainer({"command": ["/bin/sh", "-c", script]}))
    async with running(Path(sys.argv[1]), job) as run:
        pids = lambda: [run.cluster.pid(pod.name) for pod in run.cluster.pods(run.key)]
        log = Path(sys.argv[1], "logs/demo-sampler-0.log")
        await run.until(lambda job: len(pids()) == 2 and all(pids()) and log.exists() and log.stat().st_size)
        print(*pids(), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_start_that_is_cancelled_at_the_last_moment_leaves_no_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        runtime = WarmRuntime(PROGRAM)
        await runtime.open(tmp_path / "runtime.log")
        try:
            command = Command(["sleep", "1000"], {}, tmp_path, tmp_path / "sleep.log", "sleep")
            starting = asyncio.create_task(runtime.start(command))
            template = await runtime._living_template()
            while not any(started.done() for started in template._starting.values()):
                await asyncio.sleep(0)
            (process,) = template._children.values()
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            assert starting.cancelled()
            await gone([process.pid])
        finally:
            await runtime.close()

    asyncio.run(scenario())


def test_when_the_parent_is_killed_nothing_is_left(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        pids.append(int((tmp_path / "logs/demo-sampler-0.log").read_text()))  # a child of a pod's process
        template = psutil.Process(pids[0]).ppid()
        assert all(psutil.pid_exists(pid) for pid in pids)
        parent.kill()
    asyncio.run(gone([*pids, template]))
