"""Storage goes wrong: a checkpoint that is damaged, a disk that is full."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from training import LEARNER, Run, Train, eventually, small_job


def checkpoints(workdir: Path) -> list[Path]:
    """The complete ones, oldest first."""
    return sorted(path.parent for path in workdir.glob("checkpoints/step-*/complete.json"))


def damage(path: Path) -> None:
    """Flip bytes in the middle of a file, whose size stays."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    for place in range(middle, middle + 16):
        content[place] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.timeout(60)
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(train: Train) -> None:
    async def scenario(run: Run) -> None:
        workdir = run.cluster.workdir
        await run.until_ready()
        await eventually(lambda: len(checkpoints(workdir)) >= 2)
        await run.cluster.update_spec(run.key, {"runPolicy": {"suspend": True}})
        await run.until(lambda job: job.status.phase == "Suspended" and not run.cluster.pods(run.key))
        *_, older, newest = checkpoints(workdir)
        incarnation = run.points[-1]["run"]
        damage(newest / "state.pt")

        await run.cluster.update_spec(run.key, {"runPolicy": {"suspend": False}})
        await run.until_ready()
        await eventually(lambda: run.points and run.points[-1]["run"] != incarnation)
        warned = run.event("CheckpointSkipped")
        assert warned is not None
        assert newest.name in warned
        assert "was passed over: the content of state.pt is not what was written" in warned
        assert f"CheckpointSkipped: {warned}" in run.job.status.warnings
        assert (
            f"went on from checkpoint file://{older}\n" in (workdir / "logs" / f"{LEARNER}.log").read_text()
        )

        first = next(point for point in run.points if point["run"] != incarnation)
        assert step_of(older) <= first["environmentSteps"], "the first point may be one of waiting"
        await run.until_steps()
        assert (await run.finish()).status.failures == 0

    train(small_job(), scenario)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[1])


def fill(folder: Path) -> Path:
    """Take all room that is left there; returns the file that takes it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return filler


@pytest.mark.timeout(60)
@pytest.mark.parametrize("all_on_it", [False, True], ids=["checkpoints", "the whole workdir"])
def test_a_full_disk_is_told_training_goes_on_and_it_heals(
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

        await run.until_ready()
        await run.until(lambda _: healthy("True"))
        filler = fill(small_disk)
        await run.until(lambda _: healthy("False"))
        told = run.condition("CheckpointHealthy")
        assert told is not None
        assert told.reason == "CheckpointFailed"
        assert f"could not be written to file://{small_disk}" in told.message
        assert told.message.endswith(": the disk is full; training goes on")

        if all_on_it:
            await run.until(lambda _: run.event("MetricsNotWritten"))
        await run.until_steps()
        await run.until_steps()
        assert healthy("False")
        filler.unlink()
        await run.until(lambda _: healthy("True"))
        await run.until(lambda job: not job.status.warnings)
        status = (await run.finish()).status
        assert (status.restarts, status.failures) == (0, 0)

    train(small_job(checkpoint=checkpoint), scenario)


@pytest.mark.timeout(60)
def test_a_disk_that_is_full_to_the_end_is_what_the_job_fails_of(train: Train, small_disk: Path) -> None:
    async def scenario(run: Run) -> None:
        await run.until(lambda job: job.status.checkpoint is not None)
        fill(small_disk)
        await run.cluster.update_spec(run.key, {"stop": {"environmentSteps": run.steps}})
        job = await run.until_ended()
        assert job.status.phase == "Failed"
        assert f"the policy could not be written to file://{small_disk}" in job.status.message
        assert job.status.message.endswith(": the disk is full")

    checkpoint = {"everySeconds": 1, "uri": f"file://{small_disk}"}
    container = {"name": "trainer", "env": [{"name": "TEST_LAST_WRITES_SECONDS", "value": "2"}]}
    learner = {"template": {"spec": {"containers": [container]}}}
    train(small_job(checkpoint=checkpoint, runPolicy={"backoffLimit": 6}, learner=learner), scenario)
