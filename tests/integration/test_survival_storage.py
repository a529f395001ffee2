"""Storage fails: a damaged checkpoint, and a full disk during a run or at its end."""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from small_jobs import gradient_job, role_with, small_job
from training import LEARNER, Run, Train, eventually, step_of


def damage(path: Path) -> None:
    """Flips bytes in the middle of a file without changing its size."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    for place in range(middle, middle + 16):
        content[place] ^= 0xFF
    path.write_bytes(content)


def fill(folder: Path) -> Path:
    """Fills the disk of the folder. Returns the file that takes the space."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return filler


async def stop_now(run: Run) -> None:
    await run.cluster.update_spec(run.key, {"stop": {"environmentSteps": max(1, run.steps)}})


async def until_refused(run: Run) -> None:
    """Waits until training is over and the results could not be written."""
    await run.until(lambda job: any("ResultsNotWritten" in warning for warning in job.status.warnings))


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        await eventually(lambda: len(run.checkpoints()) >= 2)
        await run.cluster.update_spec(run.key, {"runPolicy": {"suspend": True}})
        await run.until(lambda job: job.status.phase == "Suspended" and not run.cluster.pods(run.key))
        *_, older, newest = run.checkpoints()
        life = run.point["run"]
        damage(newest / "state.pt")

        await run.cluster.update_spec(run.key, {"runPolicy": {"suspend": False}})
        first = await run.until_another_life(life)
        await run.until(lambda job: run.event("CheckpointSkipped"))
        warned = run.event("CheckpointSkipped")
        assert warned is not None
        assert newest.name in warned
        assert "was skipped: the content of state.pt differs from what was written" in warned
        await run.until(lambda job: f"CheckpointSkipped: {warned}" in job.status.warnings)
        assert f"resumed from checkpoint file://{older}\n" in run.log(LEARNER)
        assert step_of(older) <= first["environmentSteps"], "the first point may be one of waiting"
        await run.until_steps()
        assert (await run.finish()).status.failures == 0

    train(small_job(), scenario)


def test_checkpoints_follow_settings_that_change_while_the_job_runs(train: Train) -> None:
    async def scenario(run: Run) -> None:
        def written() -> int:
            return len(run.checkpoints())

        await run.until_steps()
        assert written() == 0
        await run.cluster.update_spec(run.key, {"checkpoint": {"everySeconds": 1, "keep": 2}})
        await run.until(lambda _: written() == 2)
        await run.cluster.update_spec(run.key, {"checkpoint": {"keep": 5}})
        await run.until(lambda _: written() == 5)
        assert run.job.status.restarts == 0

    train(small_job(checkpoint={"everySeconds": 3600}), scenario)


@pytest.mark.parametrize("all_on_it", [False, True], ids=["checkpoints", "the whole workdir"])
def test_a_full_disk_is_reported_training_continues_and_it_recovers(
    train: Train, small_disk: Path, all_on_it: bool
) -> None:
    checkpoint: dict[str, Any] = {"everySeconds": 1, "keep": 2}
    if all_on_it:
        train.workdir = small_disk / "run"
    else:
        checkpoint["uri"] = f"file://{small_disk}"

    async def scenario(run: Run) -> None:
        def healthy(status: str) -> bool:
            condition = run.condition("CheckpointHealthy")
            return condition is not None and condition.status == status

        await run.until(lambda _: healthy("True"))
        filler = fill(small_disk)
        await run.until(lambda _: healthy("False"))
        told = run.condition("CheckpointHealthy")
        assert told is not None
        assert told.reason == "CheckpointFailed"
        assert f"could not be written to file://{small_disk}" in told.message
        assert told.message.endswith(": the disk is full; training continues")

        if all_on_it:
            await run.until(lambda _: run.event("MetricsNotWritten"))
        await run.until_steps()
        await run.until_steps()
        assert healthy("False")
        filler.unlink()
        await run.until(lambda _: healthy("True"))
        await run.until(lambda job: not job.status.warnings)
        if all_on_it:
            status = (await run.finish()).status
            assert (status.restarts, status.failures) == (0, 0)
            return

        # The disk is full again when the run ends. A learner that waits for space exits on SIGTERM.
        filler = fill(small_disk)
        await stop_now(run)
        await until_refused(run)
        process = run.kill(LEARNER, signal.SIGTERM)
        await eventually(lambda: not process.is_running())
        filler.unlink()
        status = (await run.until_succeeded()).status
        assert (status.learner.restarts, status.failures) == (1, 0)

    train(small_job(checkpoint=checkpoint), scenario)


def test_two_holders_that_end_on_a_full_disk_succeed_as_soon_as_there_is_room(
    train: Train, small_disk: Path
) -> None:
    async def scenario(run: Run) -> None:
        await run.until(lambda job: job.status.checkpoint is not None)
        filler = fill(small_disk)
        await stop_now(run)
        await until_refused(run)
        steps, told = run.steps, run.event("ResultsNotWritten")
        assert told is not None
        assert f"could not be written to file://{small_disk}/demo" in told
        assert ": the disk is full; the run is over" in told
        filler.unlink()
        status = (await run.until_succeeded()).status
        assert (status.learner.restarts, status.sampler.restarts, status.failures) == (0, 0, 0)
        newest = run.checkpoints(small_disk / "demo")[-1]
        assert step_of(newest) == status.progress.environment_steps >= steps
        policy = json.loads((small_disk / "demo" / "policy" / "policy.json").read_text())
        assert policy["progress"]["environmentSteps"] == status.progress.environment_steps

    checkpoint = {"everySeconds": 1, "uri": f"file://{small_disk}"}
    train(gradient_job("a3c", learner={"replicas": 2}, checkpoint=checkpoint), scenario)


def test_a_disk_that_is_full_to_the_end_is_what_the_job_fails_of(train: Train, small_disk: Path) -> None:
    async def scenario(run: Run) -> None:
        await run.until(lambda job: job.status.checkpoint is not None)
        fill(small_disk)
        await stop_now(run)
        job, _ = await run.until_failed()
        assert f"the policy could not be written to file://{small_disk}" in job.status.message
        assert job.status.message.endswith(": the disk is full")

    checkpoint = {"everySeconds": 1, "uri": f"file://{small_disk}"}
    learner = role_with(TEST_LAST_WRITES_SECONDS="0.5")
    train(small_job(checkpoint=checkpoint, runPolicy={"backoffLimit": 6}, learner=learner), scenario)
