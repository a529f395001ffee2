"""The stacks of a running job's processes."""

from __future__ import annotations

import pytest
from rltraining.jobfile import JOB_NAME, JobFile
from rltraining.stack import stack
from small_jobs import small_job
from training import LEARNER, SAMPLER, Run, Train


def test_the_stacks_of_a_blocked_sampler_show_where_it_blocks(
    train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        await run.hold(SAMPLER)
        folder = run.cluster.workdir
        JobFile(run.job).save(folder / JOB_NAME)
        stack(folder, "sampler-0")
        sampler = capsys.readouterr().out
        assert f"{SAMPLER}, process {run.cluster.pid(SAMPLER)}: " in sampler
        (step,) = [
            line for line in sampler.splitlines() if line.endswith(" in step") and "training_program" in line
        ]
        assert step.startswith('  File "')
        stack(folder, None)
        everything = capsys.readouterr().out
        assert f"{LEARNER}, process {run.cluster.pid(LEARNER)}: " in everything
        run.release(SAMPLER)
        await run.until_updates(10)
        assert run.job.status.restarts == 0

    train(small_job(), scenario)
