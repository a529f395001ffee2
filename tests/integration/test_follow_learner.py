"""The number of samplers of a local run follows the speed of its learner."""

from __future__ import annotations

from rltraining_api.job import RLTrainingJob
from small_jobs import CODE, code, small_job
from training import Run, Train

from tests.sampler_demand import MODULE, SLOW, demanding


def scalings(run: Run) -> list[str]:
    """`from 2 to 3` for each change of the number."""
    told = (known.event for known in run.cluster.events if known.event.reason == "SamplersScaled")
    return [event.message.partition(" samplers: ")[0] for event in told]


def settled(job: RLTrainingJob, samplers: int) -> bool:
    """Whether this number of samplers was measured, and kept."""
    found = job.status.autoscale
    return found is not None and found.target == samplers and found.search.steps_per_second is not None


def test_a_learner_gets_the_samplers_that_it_needs_and_fewer_when_it_slows_down(train: Train) -> None:
    job = small_job(**demanding("demand"), code=CODE)

    async def scenario(run: Run) -> None:
        # Two are too few.
        await run.until(lambda job: settled(job, 3))
        assert scalings(run) == ["from 2 to 3"]
        await run.until_size(1, 3)

        # One suffices for a slow learner.
        (run.cluster.workdir / SLOW).touch()
        await run.until(lambda job: settled(job, 1))
        assert scalings(run)[-1] == "from 2 to 1"
        await run.until_size(1, 1)

        # A user's number takes precedence.
        await run.cluster.update_spec(run.key, {"sampler": {"replicas": 5}})
        await run.until_size(1, 5)
        assert scalings(run)[-1] == "from 1 to 5"
        (run.cluster.workdir / SLOW).unlink()
        status = (await run.finish()).status
        assert (status.failures, status.disruptions, status.restarts) == (0, 0, 0)
        assert status.sampler.summary == "0/5"

    train(job, scenario, code(demand=MODULE))
