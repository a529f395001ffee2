"""LocalCluster with the real engine and real processes: the life of a job."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import psutil
import pytest
from local_cluster_run import PROGRAM, gone, make_job, on_python_path, running, trainer
from rltraining_operator.errors import NotFoundError, RejectedError
from rltraining_operator.local import WarmRuntime
from training import training


@pytest.fixture(autouse=True)
def _python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    on_python_path(monkeypatch)


def test_a_job_runs_to_its_end(tmp_path: Path) -> None:
    before = psutil.Process().children(recursive=True)  # what other tests share
    job = make_job(
        learner=trainer(STEPS="60"), sampler={"replicas": 2} | trainer(END_WITH_LEARNER="1"), seed=7
    )

    async def scenario() -> None:
        async with running(tmp_path, job) as run:
            await run.until_phase("Running")
            token = tmp_path / ".pods/demo-sampler-1/token/token"
            assert stat.S_IMODE(token.stat().st_mode) == 0o600
            assert len(token.read_text()) == 64
            done = await run.until(lambda job: job.status.completion_time is not None)
            assert done.status.phase == "Succeeded"
            assert done.status.message == "60 steps are done"
            assert done.status.progress.environment_steps == 60
            assert (done.status.failures, done.status.disruptions, done.status.restarts) == (0, 0, 0)
            assert run.reasons() == ["PodsCreated", "Running", "Completed"]

    asyncio.run(scenario())
    written = json.loads((tmp_path / "status.json").read_text())
    assert written["status"]["phase"] == "Succeeded"
    assert written["spec"]["seed"] == 7
    assert "sampler demo-sampler-1 starts" in (tmp_path / "logs/demo-sampler-1.log").read_text()
    assert psutil.Process().children(recursive=True) == before
    assert not (tmp_path / ".pods").exists()


@pytest.mark.parametrize("nice", [0, 10])
def test_training_has_the_priority_that_was_asked_for(tmp_path: Path, nice: int) -> None:
    def check(pid: int | None) -> None:
        assert psutil.Process(pid).nice() == min(psutil.Process().nice() + nice, 19)
        session = Path(f"/proc/{pid}/autogroup")
        assert not session.exists() or session.read_text().endswith(f"nice {nice}\n")

    async def scenario() -> None:
        async with training(tmp_path, WarmRuntime(PROGRAM, nice), make_job()) as run:
            await run.until_phase("Running")
            check(run.cluster.pid("demo-learner-0"))
            check(run.cluster.pid("demo-sampler-0"))

    asyncio.run(scenario())


def test_scale_suspend_resume_delete(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, make_job(sampler={"replicas": 2})) as run:
            cluster, key = run.cluster, run.key
            await run.until_size(1, 2)
            first = {pod.name: cluster.pid(pod.name) for pod in cluster.pods(key)}

            await cluster.update_spec(key, {"sampler": {"replicas": 3}})
            await run.until_size(1, 3)
            assert {name: cluster.pid(name) for name in first} == first
            config = tmp_path / ".pods/demo-learner-0/config/job.json"
            assert json.loads(config.read_text())["spec"]["sampler"]["replicas"] == 3

            await cluster.update_spec(key, {"sampler": {"replicas": 1}})
            await run.until(lambda job: job.status.sampler.summary == "1/1" and len(cluster.pods(key)) == 2)
            assert cluster.pid("demo-sampler-0") == first["demo-sampler-0"]

            await cluster.update_spec(key, {"runPolicy": {"suspend": True}})
            suspended = await run.until(lambda job: job.status.phase == "Suspended" and not cluster.pods(key))
            assert suspended.status.start_time is None
            steps = suspended.status.progress.environment_steps
            assert steps > 0

            await cluster.update_spec(key, {"runPolicy": {"suspend": False}})
            await run.until_size(1, 1)
            resumed = await run.until(lambda job: job.status.progress.environment_steps > steps)
            assert resumed.status.disruptions == resumed.status.failures == 0
            pids = [pid for pod in cluster.pods(key) if (pid := cluster.pid(pod.name))]

            with pytest.raises(RejectedError, match="a separate workdir"):
                await cluster.submit(make_job())
            with pytest.raises(RejectedError, match=r"sampler\.replicas"):
                await cluster.update_spec(key, {"sampler": {"replicas": -1}})

            await cluster.delete_job(key)
            await gone(pids)
            with pytest.raises(NotFoundError):
                cluster.job(key)

    asyncio.run(scenario())


def test_a_finished_job_is_deleted_when_its_time_is_over(tmp_path: Path) -> None:
    job = make_job(
        learner=trainer(STEPS="3"),
        sampler=trainer(END_WITH_LEARNER="1"),
        runPolicy={"ttlSecondsAfterFinished": 1, "cleanPodPolicy": "All"},
    )

    async def scenario() -> None:
        async with running(tmp_path, job) as run:
            with pytest.raises(NotFoundError):
                await run.until(lambda job: False)
            assert run.reasons()[-2:] == ["Completed", "PodsDeleted"], run.reasons()
            assert await run.cluster.observe(run.key) is None

    asyncio.run(scenario())


def test_user_code_comes_from_a_config_map_that_may_come_late(tmp_path: Path) -> None:
    job = make_job(
        code={"configMap": {"name": "mine"}},
        learner=trainer({"command": ["sh", "-c", "python3 $RLTRAINING_CODE_DIR/mine.py"]}),
    )
    code = {"kind": "ConfigMap", "metadata": {"name": "mine"}, "data": {"mine.py": "raise SystemExit(7)"}}

    async def scenario() -> None:
        async with running(tmp_path, job) as run:
            missing = await run.until(lambda job: "not found" in job.status.message)
            assert missing.status.message == (
                'pod demo-learner-0, container trainer: CreateContainerConfigError: configmap "mine" not found'
            )
            run.cluster.put(code)
            await run.until(lambda job: "exit code 7" in job.status.message)

    asyncio.run(scenario())


def test_a_status_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "status.json.new").mkdir()

    async def scenario() -> None:
        async with running(
            tmp_path, make_job(learner=trainer(STEPS="3"), sampler=trainer(END_WITH_LEARNER="1"))
        ) as run:
            await run.until_phase("Succeeded")

    asyncio.run(scenario())
    assert len([record for record in caplog.records if "cannot write" in record.message]) == 1
