"""A3C, A2C and PPO under attack: samplers and parameter holders die, and one sampler is slow; training goes on."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest
import torch
from rltraining_api.contract import STATUS_PATH, LearnerReport
from rltraining_operator import http
from rltraining_trainer.checkpoint import CheckpointStore
from rltraining_trainer.policy import Policy
from rltraining_trainer.transport import Endpoint, PeerLost, discover
from training import (
    CODE,
    LEARNER,
    SAMPLERS,
    SECONDS,
    SMALL,
    Run,
    Train,
    code,
    eventually,
    gradient_job,
)

OTHER = "demo-learner-1"
LEARNERS = (LEARNER, OTHER)
KILL_PERIOD, KILLS = 2.0, 4
DEADLINE = 1.0
"""Of an update in step, in seconds."""
SLACK = 0.5
"""Seconds by which two cores may be late while a process starts on one of them."""
STEADY_BYTES = 30 << 20
STEADY_FILES = 8


SLOWER = 50
SLOW = f"""
import os
import time
import gymnasium as gym

class Slow(gym.Wrapper):
    def __init__(self):
        super().__init__(gym.make("CartPole-v1").unwrapped)
        self._seconds = 0.003 * ({SLOWER} if os.environ["RLTRAINING_POD_NAME"] == "demo-sampler-0" else 1)

    def step(self, action):
        time.sleep(self._seconds)
        return self.env.step(action)

gym.register("Slow-v0", entry_point=Slow, max_episode_steps=100)
"""
"""One sampler's environment needs SLOWER times as long as the others'."""


async def until_learning(run: Run) -> None:
    await run.until_ready()
    await run.until(lambda job: job.status.progress.updates > 0)


def updates(run: Run) -> int:
    return int(run.points[-1]["updates"])


async def until_updates(run: Run, more: int) -> None:
    goal = updates(run) + more
    await eventually(lambda: updates(run) >= goal)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("algorithm", ["a3c", "ppo"])
def test_samplers_killed_every_2_s_hold_nobody_up(train: Train, algorithm: str) -> None:
    """An update that would wait for a dead one waits as long as the deadline at most."""

    async def scenario(run: Run) -> None:
        await until_learning(run)
        learner, first = run.process(LEARNER), len(run.points)
        resident, files = learner.memory_info().rss, learner.num_fds()
        for number in range(KILLS):
            victim, before, began = SAMPLERS[number % 2], updates(run), time.monotonic()
            run.kill(victim)
            await run.until(lambda job, goal=number + 1: job.status.sampler.restarts == goal)
            await run.until(lambda job, victim=victim: run.pod(victim).ready)
            await asyncio.sleep(began + KILL_PERIOD - time.monotonic())  # the period of the kills
            assert updates(run) > before

        waits = [point["learner/longestWait"] for point in run.points[first:]]
        assert len(waits) > KILLS * KILL_PERIOD
        assert max(waits) <= (DEADLINE if algorithm == "ppo" else 0.0) + SLACK, waits
        assert learner.memory_info().rss - resident < STEADY_BYTES
        assert learner.num_fds() - files <= STEADY_FILES
        assert run.process(LEARNER) == learner
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts) == (KILLS, 0)
        assert (status.failures, status.disruptions) == (0, KILLS)

    aggregate = {"deadlineSeconds": DEADLINE} if algorithm == "ppo" else None
    train(gradient_job(algorithm, aggregate=aggregate), scenario)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("algorithm", ["a3c", "ppo"])
def test_a_killed_learner_goes_on_from_its_checkpoint_with_the_samplers_that_it_had(
    train: Train, algorithm: str
) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        await run.until(lambda job: job.status.checkpoint is not None)
        pids = {name: run.cluster.pid(name) for name in SAMPLERS}
        checkpoint, before = newest_checkpoint(run), run.points[-1]
        run.kill(LEARNER)
        await eventually(lambda: run.points[-1]["run"] != before["run"])
        await until_updates(run, 20)

        after = [point for point in run.points if point["run"] != before["run"]]
        assert after[0]["environmentSteps"] >= checkpoint[0]
        assert after[0]["updates"] >= checkpoint[1]["learner"]["updates"] > 0
        for name in ("environmentSteps", "updates", "episodes", "gradients/pushed", "gradients/applied"):
            curve = [point[name] for point in run.points]
            assert curve == sorted(curve), name
        assert {name: run.cluster.pid(name) for name in SAMPLERS} == pids
        check_one_gradient_an_update(run, algorithm)
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts) == (0, 1)
        assert (status.failures, status.disruptions) == (0, 1)

    train(gradient_job(algorithm), scenario)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("algorithm", ["a3c", "a2c"])
def test_two_holders_go_back_to_the_same_checkpoint_when_one_of_them_is_killed(
    train: Train, algorithm: str
) -> None:
    """While samplers are frozen nothing changes: what the two then have is that checkpoint, half of it each."""

    async def scenario(run: Run) -> None:
        await until_learning(run)
        pids = {name: run.cluster.pid(name) for name in SAMPLERS}
        for victim in (OTHER, LEARNER):
            await until_newer_checkpoint(run)
            lives, before = {point["run"] for point in run.points}, newest_checkpoint(run)[0]
            await until_updates(run, 20)
            for name in SAMPLERS:
                run.kill(name, signal.SIGSTOP)
            run.kill(victim)
            halves = await asyncio.to_thread(held, run)
            step, state = newest_checkpoint(run)
            assert torch.equal(torch.cat(halves), state["learner"]["parameters"])
            assert step >= before
            for name in SAMPLERS:
                run.kill(name, signal.SIGCONT)
            # The last life's points after the checkpoint are void, and may be all that it had.
            await eventually(lambda lives=lives: run.points[-1]["run"] not in lives)
            assert run.points[-1]["environmentSteps"] >= step
            assert updates(run) >= state["learner"]["updates"]
            await until_updates(run, 20)

        curve = [point["environmentSteps"] for point in run.points]
        assert curve == sorted(curve)
        check_one_gradient_an_update(run, algorithm)
        assert {name: run.cluster.pid(name) for name in SAMPLERS} == pids
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.learner.restarts, status.failures) == (0, 2, 0)
        exported = Policy.load(str(run.cluster.workdir / "policy")).network.parameters()
        whole = torch.cat([parameter.detach().flatten() for parameter in exported])
        assert torch.equal(whole, newest_checkpoint(run)[1]["learner"]["parameters"])

    train(gradient_job(algorithm, learner={"replicas": 2}), scenario)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("mode", ["Async", "Sync"])
def test_one_sampler_that_is_50_times_as_slow_holds_nobody_up(train: Train, mode: str) -> None:
    """While it makes one rollout the other makes 50. All of its own come too late, and are counted."""
    aggregate = {
        "Async": {"mode": "Async", "count": 1, "maxStaleness": 10},
        "Sync": {"mode": "Sync", "count": None, "deadlineSeconds": 0.1},
    }

    async def scenario(run: Run) -> None:
        applied = []
        for late in (1, 2):
            await eventually(lambda late=late: run.points and run.points[-1]["gradients/stale"] >= late)
            applied.append(run.points[-1]["gradients/applied"])
        assert applied[1] - applied[0] >= SLOWER / 2, applied

    job = gradient_job(
        "a3c", aggregate=aggregate[mode], code=CODE, environment={"id": "slow:Slow-v0", "numEnvs": 1}
    )
    train(job, scenario, code(slow=SLOW))


@pytest.mark.timeout(60)
def test_two_holders_go_on_when_all_samplers_die_in_the_middle_of_an_iteration(train: Train) -> None:
    """They find out together that nobody is left who would bring it to its end; nothing is taken back."""

    async def scenario(run: Run) -> None:
        await until_learning(run)
        life = run.points[-1]["run"]
        for number in range(3):
            for name in SAMPLERS:
                run.kill(name)
            await run.until(lambda job, goal=2 * number + 2: job.status.sampler.restarts == goal)
            await run.until(lambda job: all(run.pod(name).ready for name in SAMPLERS))
            await until_updates(run, 10)
        assert {point["run"] for point in run.points} == {life}
        await run.finish()

    train(gradient_job("ppo", learner={"replicas": 2}), scenario)


@pytest.mark.timeout(60)
def test_two_holders_that_are_told_to_end_leave_a_checkpoint_of_that_moment(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await until_learning(run)
        for member in LEARNERS:
            steps, restarts = await run.until_steps(), run.job.status.learner.restarts
            run.kill(member, signal.SIGTERM)
            await run.until(lambda job, goal=restarts + 1: job.status.learner.restarts == goal)
            assert newest_checkpoint(run)[0] >= steps, member
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

    train(gradient_job("ppo", learner={"replicas": 2}, checkpoint={"everySeconds": 3600}), scenario)


@pytest.mark.timeout(60)
def test_a_holder_that_has_ended_is_there_again_when_the_first_has_begun_anew(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first dies as it takes its leave, and goes on where it is not over yet, before the other one has ended."""
    monkeypatch.setattr("rltraining_operator.members.REMAKE_SECONDS", 0.1)

    async def scenario(run: Run) -> None:
        await until_learning(run)
        await run.cluster.update_spec(run.key, {"stop": {"environmentSteps": max(1, run.steps)}})
        async with asyncio.timeout(SECONDS):
            while await state(run, OTHER) != "Finished":
                pass
        for name in LEARNERS:
            run.kill(name, signal.SIGSTOP)
        await run.cluster.update_spec(run.key, {"stop": SMALL["stop"]})
        limit = str(SMALL["stop"]["environmentSteps"])
        job = next((run.cluster.workdir / ".pods" / LEARNER).rglob("job.json"))
        await eventually(lambda: limit in job.read_text())
        run.kill(LEARNER)
        await run.until(lambda job: job.status.learner.restarts == 1 and run.pod(LEARNER).ready)
        run.kill(OTHER, signal.SIGCONT)
        await run.until_ready()
        await run.until_steps()
        status = (await run.finish()).status
        assert (status.failures, status.disruptions) == (0, 1)

    train(gradient_job("a3c", learner={"replicas": 2}), scenario)


def check_one_gradient_an_update(run: Run, algorithm: str) -> None:
    """Of A3C, however often it went back: what is applied is what the parameters show."""
    if algorithm == "a3c":
        assert all(point["gradients/applied"] == point["updates"] for point in run.points), run.points


async def state(run: Run, learner: str) -> str:
    """What it says of itself."""
    headers = {"Authorization": f"Bearer {run.token}"}
    answer = await http.get("127.0.0.1", run.cluster._ports.of(learner), STATUS_PATH, headers=headers)
    return LearnerReport.model_validate_json(answer.body).state if answer is not None else ""


async def until_newer_checkpoint(run: Run) -> None:
    steps = run.steps
    await run.until(lambda job: job.status.checkpoint is not None and job.status.checkpoint.step > steps)


def held(run: Run) -> list[torch.Tensor]:
    """What a sampler that comes now gets from each holder: the same place, and so all that it takes to begin."""
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
    url = discover(f"http://127.0.0.1:{run.cluster._ports.of(learner)}", run.token)["url"]
    return endpoint.dial(url).call("pull", {"version": 0}).result()


def newest_checkpoint(run: Run) -> tuple[int, dict[str, Any]]:
    """Its step and what it holds."""
    loaded = CheckpointStore(str(run.cluster.workdir / "checkpoints"), keep=3).load_newest()
    assert loaded is not None
    return loaded.step, loaded.state
