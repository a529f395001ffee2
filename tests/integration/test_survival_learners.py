"""Several learners that update in step: one dies, the others go on, and samplers hear nothing of it."""

from __future__ import annotations

from typing import Any

import pytest
from rltraining_api.job import RLTrainingJob
from training import LEARNER, SAMPLERS, Run, Train, eventually, replay_job, small_job

OTHER = "demo-learner-1"
TWO: dict[str, Any] = {"learner": {"replicas": 2}, "sampler": {"replicas": 2}}
JOBS = {"impala": small_job(**TWO), "dqnApex": replay_job(**TWO)}

each_dataflow = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


def updates(run: Run) -> int:
    return int(run.points[-1]["updates"])


async def until_learning(run: Run) -> None:
    await run.until_ready()
    await run.until(lambda job: job.status.progress.updates > 0)


async def until_updates(run: Run, more: int) -> None:
    goal = updates(run) + more
    await eventually(lambda: updates(run) >= goal)


def groups(run: Run) -> int:
    """How often the two have formed a group."""
    return (run.cluster.workdir / "logs" / f"{LEARNER}.log").read_text().count("learners 0, 1")


@pytest.mark.timeout(60)
@each_dataflow
def test_two_learners_share_the_work_and_end_together(train: Train, job: RLTrainingJob) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        await until_updates(run, 50)  # one of the samplers may have begun a little later
        assert groups(run) == 1
        if job.spec.algorithm.name == "impala":  # 16 steps of 8 environments from each learner's sampler
            first = run.points[-1]
            await until_updates(run, 1000)  # seconds: one may be without a core for a while
            steps, made = (run.points[-1][name] - first[name] for name in ("environmentSteps", "updates"))
            assert steps > 1.5 * 16 * 8 * made, "the other's steps count too"
        else:
            await until_updates(run, 50)
        status = (await run.finish()).status
        assert status.restarts == 0
        assert (status.learner.summary, status.failures) == ("0/2", 0)

    train(job, scenario)


@pytest.mark.timeout(90)
@each_dataflow
def test_the_other_learner_dies_and_comes_back(train: Train, job: RLTrainingJob) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        pids = {name: run.cluster.pid(name) for name in (LEARNER, *SAMPLERS)}
        before = updates(run)
        run.kill(OTHER)
        await until_updates(run, 20)
        await run.until(lambda job: job.status.learner.restarts == 1)
        await eventually(lambda: groups(run) == 2)
        await until_updates(run, 20)

        curve = [point["updates"] for point in run.points]
        assert curve == sorted(curve), "no update that was made is forgotten"
        assert updates(run) > before
        assert {name: run.cluster.pid(name) for name in (LEARNER, *SAMPLERS)} == pids
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts, status.failures) == (0, 1, 0)

    train(job, scenario)


@pytest.mark.timeout(90)
@each_dataflow
def test_the_first_learner_dies_and_takes_over_what_the_other_knows(train: Train, job: RLTrainingJob) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        await run.until(lambda job: job.status.checkpoint is not None)
        await until_updates(run, 50)
        pids = {name: run.cluster.pid(name) for name in (OTHER, *SAMPLERS)}
        before, incarnation = updates(run), run.points[-1]["run"]
        run.kill(LEARNER)
        await eventually(lambda: run.points[-1]["run"] != incarnation)

        fresh = next(point for point in run.points if point["run"] != incarnation)
        assert fresh["updates"] >= before, "from the other learner, not from the older checkpoint"
        await until_updates(run, 20)
        assert {name: run.cluster.pid(name) for name in (OTHER, *SAMPLERS)} == pids
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts, status.failures) == (0, 1, 0)

    train(job, scenario)
