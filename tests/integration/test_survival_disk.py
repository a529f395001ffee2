"""The disk is full when the run ends: what only the first learner has is kept until there is room."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from rltraining_api.job import RLTrainingJob
from test_survival_storage import checkpoints, fill, step_of
from training import LEARNER, Run, Train, eventually, gradient_job, small_job


def on(disk: Path, kind: str) -> RLTrainingJob:
    checkpoint = {"everySeconds": 1, "uri": f"file://{disk}"}
    if kind == "one learner":
        return small_job(checkpoint=checkpoint)
    return gradient_job("a3c", learner={"replicas": 2}, checkpoint=checkpoint)


async def until_refused(run: Run, disk: Path) -> Path:
    """Training is over, and the disk takes nothing; returns what fills it."""
    await run.until_ready()
    await run.until(lambda job: job.status.checkpoint is not None)
    filler = fill(disk)
    await run.cluster.update_spec(run.key, {"stop": {"environmentSteps": run.steps}})
    await run.until(lambda job: any("ResultsNotWritten" in warning for warning in job.status.warnings))
    return filler


@pytest.mark.timeout(90)
@pytest.mark.parametrize("kind", ["one learner", "two holders"])
def test_a_run_that_ends_on_a_full_disk_succeeds_as_soon_as_there_is_room(
    train: Train, small_disk: Path, kind: str
) -> None:
    async def scenario(run: Run) -> None:
        filler = await until_refused(run, small_disk)
        steps, told = run.steps, run.event("ResultsNotWritten")
        assert told is not None
        assert f"could not be written to file://{small_disk}/demo" in told
        assert ": the disk is full; the run is over" in told
        filler.unlink()
        status = (await run.until_ended()).status
        assert status.phase == "Succeeded", status.message
        assert (status.learner.restarts, status.sampler.restarts, status.failures) == (0, 0, 0)
        assert step_of(checkpoints(small_disk / "demo")[-1]) == status.progress.environment_steps >= steps
        policy = json.loads((small_disk / "demo" / "policy" / "policy.json").read_text())
        assert policy["progress"]["environmentSteps"] == status.progress.environment_steps

    train(on(small_disk, kind), scenario)


@pytest.mark.timeout(90)
def test_a_learner_that_waits_for_room_ends_when_it_is_told_to(train: Train, small_disk: Path) -> None:
    async def scenario(run: Run) -> None:
        filler = await until_refused(run, small_disk)
        process = run.kill(LEARNER, signal.SIGTERM)
        await eventually(lambda: not process.is_running(), seconds=10)
        filler.unlink()
        status = (await run.until_ended()).status
        assert status.phase == "Succeeded", status.message
        assert (status.learner.restarts, status.failures) == (1, 0)

    train(on(small_disk, "one learner"), scenario)
