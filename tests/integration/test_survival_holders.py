"""Two learners hold a slice of the parameters each. One of them or all samplers are killed, or both are stopped."""

from __future__ import annotations

import asyncio
import signal
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
from rltraining_api.contract import STATUS_PATH, LearnerReport
from rltraining_trainer.checkpoint import CheckpointStore
from rltraining_trainer.policy import Policy
from rltraining_trainer.transport import Endpoint, PeerLost, discover
from small_jobs import SMALL, gradient_job, role_with
from test_survival_learners import check_one_gradient_an_update
from training import LEARNER, LEARNERS, OTHER_LEARNER, SAMPLERS, SECONDS, Run, Train, eventually

TWO: dict[str, Any] = {"learner": {"replicas": 2}}


def test_two_holders_go_back_to_the_same_checkpoint_when_one_of_them_is_killed(train: Train) -> None:
    """Frozen samplers send no gradients, so each learner then holds its half of the restored checkpoint."""

    async def scenario(run: Run) -> None:
        await run.until_learning()
        pids = run.running(*SAMPLERS)
        for victim in (OTHER_LEARNER, LEARNER):
            await until_newer_checkpoint(run)
            lives, before = set(run.curve("run")), newest_checkpoint(run)[0]
            await run.until_updates(10)
            await run.freeze(*SAMPLERS)
            run.kill(victim)
            halves = await asyncio.to_thread(held, run)
            # The first learner goes back to its newest state, of which the file may still be written.
            whole = torch.cat(halves)
            await eventually(lambda whole=whole: torch.equal(whole, newest_parameters(run)))
            step, state = newest_checkpoint(run)
            assert step >= before
            run.thaw(*SAMPLERS)
            # The points after the checkpoint are void. These may be all points of the last incarnation.
            await eventually(lambda lives=lives: run.points and run.point["run"] not in lives)
            assert run.point["environmentSteps"] >= step
            assert run.point["updates"] >= state["learner"]["updates"]
            await run.until_updates(10)

        run.check_never_falls("environmentSteps")
        check_one_gradient_an_update(run)
        assert run.running(*SAMPLERS) == pids
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts, status.failures) == (0, 2, 0)
        exported = Policy.load(str(run.cluster.workdir / "policy")).network.parameters()
        whole = torch.cat([parameter.detach().flatten() for parameter in exported])
        assert torch.equal(whole, newest_parameters(run))

    train(gradient_job("a3c", **TWO), scenario)


@pytest.mark.parametrize("algorithm", ["ppo", "ppoAtSamplers"])
def test_two_learners_continue_when_all_samplers_die_in_the_middle_of_an_iteration(
    train: Train, algorithm: str
) -> None:
    """The learners continue with the restarted samplers, without a rollback."""

    async def scenario(run: Run) -> None:
        await run.until_learning()
        life = run.point["run"]
        for number in range(2):
            for name in SAMPLERS:
                run.kill(name)
            await run.until(lambda job, goal=2 * number + 2: job.status.sampler.restarts == goal)
            await run.until(lambda job: all(run.pod(name).ready for name in SAMPLERS))
            await run.until_updates(10)
        assert set(run.curve("run")) == {life}
        await run.finish()

    train(gradient_job(algorithm, **TWO), scenario)


def test_two_holders_that_are_told_to_end_leave_a_checkpoint_of_that_moment(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        for member in LEARNERS:
            steps, restarts = await run.until_steps(), run.job.status.learner.restarts
            run.kill(member, signal.SIGTERM)
            await run.until(lambda job, goal=restarts + 1: job.status.learner.restarts == goal)
            # The first learner writes it, maybe after the other one has ended.
            await eventually(lambda steps=steps: newest_checkpoint(run)[0] >= steps)
            await run.until_ready()
            assert run.steps >= steps

        steps = await run.until_steps()
        await run.cluster.update_spec(run.key, {"runPolicy": {"suspend": True}})
        await run.until(lambda job: job.status.phase == "Suspended" and not run.cluster.pods(run.key))
        assert newest_checkpoint(run)[0] >= steps
        await run.cluster.update_spec(run.key, {"runPolicy": {"suspend": False}})
        assert await run.until_steps() > steps
        status = (await run.finish()).status
        assert status.failures == 0

    train(gradient_job("a3c", **TWO, checkpoint={"everySeconds": 3600}), scenario)


def test_a_holder_that_has_ended_is_there_again_when_the_first_has_begun_anew(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learner 0 is killed after its last update, and resumes under a later stop rule before learner 1 exits."""
    for module in ("failures.endings", "pods.members"):
        monkeypatch.setattr(f"rltraining_operator.{module}._PAUSE", timedelta(seconds=0.1))

    async def scenario(run: Run) -> None:
        await run.until_learning()
        await run.cluster.update_spec(run.key, {"stop": {"environmentSteps": max(1, run.steps)}})
        async with asyncio.timeout(SECONDS):
            while await state(run, OTHER_LEARNER) != "Finished":
                pass
        await run.freeze(*LEARNERS)
        await run.cluster.update_spec(run.key, {"stop": SMALL["stop"]})
        limit = str(SMALL["stop"]["environmentSteps"])
        job = next((run.cluster.workdir / ".pods" / LEARNER).rglob("job.json"))
        await eventually(lambda: limit in job.read_text())
        run.kill(LEARNER)
        await run.until(lambda job: job.status.learner.restarts == 1 and run.pod(LEARNER).ready)
        run.thaw(OTHER_LEARNER)
        await run.until_ready()
        await run.until_steps()
        status = (await run.finish()).status
        assert (status.failures, status.disruptions) == (0, 1)

    train(gradient_job("a3c", learner=role_with(2, TEST_LINGER_SECONDS="3")), scenario)


async def state(run: Run, learner: str) -> str:
    """Returns the state that the learner reports."""
    answer = await run.get(STATUS_PATH, run.token, learner)
    return LearnerReport.model_validate_json(answer.body).state if answer is not None else ""


async def until_newer_checkpoint(run: Run) -> None:
    steps = run.steps
    await run.until(lambda job: job.status.checkpoint is not None and job.status.checkpoint.step > steps)


def held(run: Run) -> list[torch.Tensor]:
    """Returns each learner's slice of the parameters, pulled as a new sampler would, at the same policy version."""
    endpoint = Endpoint("stranger", run.token)
    endpoint.start()
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            try:
                answers: list[Any] = [pull(run, name, endpoint) for name in LEARNERS]
            except PeerLost:
                continue
            if len({answer["place"] for answer in answers}) == 1:
                return [answer["parameters"] for answer in answers]
        raise AssertionError("the holders do not come together")
    finally:
        endpoint.stop()


def pull(run: Run, learner: str, endpoint: Endpoint) -> Any:
    url = discover(f"http://127.0.0.1:{run.port(learner)}", run.token)["url"]
    return endpoint.dial(url).call("gradients/pull", {"version": 0}).result()


def newest_checkpoint(run: Run) -> tuple[int, dict[str, Any]]:
    """Returns the step and the state of the newest checkpoint."""
    loaded = CheckpointStore(str(run.cluster.workdir / "checkpoints"), keep=3).load_newest()
    assert loaded is not None
    return loaded.step, loaded.state


def newest_parameters(run: Run) -> torch.Tensor:
    return newest_checkpoint(run)[1]["learner"]["parameters"]
