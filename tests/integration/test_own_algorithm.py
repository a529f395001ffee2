"""A user's own algorithm in real processes: it learns, it goes on when members die, and its mistakes are told."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from rltraining_api.contract import METRICS_PATH
from rltraining_api.job import RLTrainingJob
from test_survival_user_errors import BASE, Case
from training import CODE, LEARNER, SAMPLER, SAMPLERS, Run, Train, code, eventually, small_job

EXAMPLE = (Path(__file__).parents[2] / "examples" / "reinforce.py").read_text()
OTHER = "demo-learner-1"

COUNTING = """
import torch
from rltraining_trainer.world import GroupChanged

class Total:
    value = 0

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]

def learner(world):
    total = Total()
    run = world.run(total=total)
    while run.goes_on():
        mine = world.members("sampler").part(world.group.rank, world.group.size)
        counts = [count for count in mine.call("count", run.updates, timeout=1.0) if count is not None]
        try:
            steps = torch.tensor([float(sum(counts))])
            world.group.sum(steps, 1)
        except GroupChanged:
            continue
        total.value += int(steps)
        run.update(sum(counts), members=len(mine), answers=len(counts), total=total.value)

def sampler(world):
    world.register("count", lambda caller, updates: world.parameters["each"])
"""
"""Counts in step, and keeps the sum in its own state."""


def counting(**spec: Any) -> RLTrainingJob:
    entry_point = {"module": "counting", "parameters": {"each": 8}}
    return small_job(
        **({"algorithm": {"entryPoint": entry_point}, "code": CODE, "sampler": {"replicas": 2}} | spec)
    )


TOGETHER = """
import torch
from rltraining_trainer.world import GroupChanged

def learner(world):
    run = world.run()
    while run.goes_on():
        group, own = world.group, torch.tensor([7, world.index])
        try:
            largest = group.maximum([world.index, -world.index])
            group.broadcast(own, group.size - 1)
            group.barrier()
        except GroupChanged:
            continue
        run.update(1, size=group.size, largest=largest[0], smallest=-largest[1], last=own[1])

def sampler(world):
    pass
"""


MODULES = code(together=TOGETHER, counting=COUNTING, reinforce=EXAMPLE)


async def until_updates(run: Run, more: int) -> None:
    goal = run.job.status.progress.updates + more
    await run.until(lambda job: job.status.progress.updates >= goal)


def totals(run: Run) -> list[tuple[int, int]]:
    """What the run counts, and what the algorithm does."""
    return [
        (point["environmentSteps"], int(point["loss/total"])) for point in run.points if "loss/total" in point
    ]


@pytest.mark.timeout(90)
def test_the_example_learns_cartpole_and_leaves_a_policy(train: Train) -> None:
    job = small_job(
        algorithm={
            "entryPoint": {"module": "reinforce", "parameters": {"learningRate": 0.01, "discount": 0.99}}
        },
        environment={"id": "CartPole-v1", "numEnvs": 16},
        code=CODE,
        sampler={"replicas": 2},
        stop={"environmentSteps": 5_000_000, "meanReturn": {"atLeast": 150, "episodes": 50}},
    )

    async def scenario(run: Run) -> None:
        await run.until_steps()
        for pod, metric in (LEARNER, "learner_updates"), (SAMPLER, "sampler_environment_steps"):
            told = await run.get(METRICS_PATH, "", pod)
            assert told is not None
            assert re.search(rf"^rltraining_{metric}_total [1-9]", told.body.decode(), re.MULTILINE), told
        status = (await run.until_ended()).status
        assert status.phase == "Succeeded", status.message
        assert status.message is not None
        assert "stop.meanReturn is met" in status.message
        assert (status.progress.episodes, status.restarts) == (2 * 16 * status.progress.updates, 0)
        policy = json.loads((run.cluster.workdir / "policy" / "policy.json").read_text())
        assert policy["algorithm"] == "entryPoint"

    train(job, scenario, MODULES)


@pytest.mark.timeout(90)
def test_a_sampler_that_is_killed_is_called_again_when_it_is_back(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_ready()
        await until_updates(run, 10)
        pid = run.cluster.pid(LEARNER)
        run.kill(SAMPLER)
        await run.until(lambda job: job.status.sampler.restarts == 1)
        await run.until_ready()
        lines = len(run.points)
        await eventually(lambda: any(point["loss/answers"] == 2 for point in run.points[lines:]))
        assert run.cluster.pid(LEARNER) == pid
        status = (await run.finish()).status
        assert (status.learner.restarts, status.failures) == (0, 0)

    train(counting(), scenario, MODULES)


@pytest.mark.timeout(90)
def test_samplers_may_become_more(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await eventually(lambda: run.points and run.points[-1]["loss/members"] == 1)
        await run.cluster.update_spec(run.key, {"sampler": {"replicas": 3}})
        await eventually(lambda: run.points[-1]["loss/answers"] == 3)
        await run.finish()

    train(counting(sampler={"replicas": 1}), scenario, MODULES)


@pytest.mark.timeout(90)
def test_a_learner_that_is_killed_goes_on_from_its_checkpoint(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_ready()
        await run.until(lambda job: job.status.checkpoint is not None)
        pids = [run.cluster.pid(name) for name in SAMPLERS]
        checkpoint, incarnation = run.job.status.checkpoint, run.points[-1]["run"]
        assert checkpoint is not None
        run.kill(LEARNER)
        await eventually(lambda: run.points[-1]["run"] != incarnation)
        fresh = next(point for point in run.points if point["run"] != incarnation)
        assert fresh["environmentSteps"] >= checkpoint.step > 0
        assert all(steps == total for steps, total in totals(run)), "state and counts are of one moment"
        assert [run.cluster.pid(name) for name in SAMPLERS] == pids
        status = (await run.finish()).status
        assert (status.learner.restarts, status.sampler.restarts, status.failures) == (1, 0, 0)

    train(counting(), scenario, MODULES)


@pytest.mark.timeout(90)
def test_a_learner_that_is_told_to_end_leaves_a_checkpoint(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_ready()
        await until_updates(run, 50)
        steps = run.steps
        run.kill(LEARNER, signal.SIGTERM)
        await run.until(lambda job: job.status.learner.restarts == 1)
        await run.until_ready()
        await until_updates(run, 1)
        assert run.steps >= steps
        end = run.event("Disrupted")
        assert end is not None
        assert end.endswith("exit code 143 (SIGTERM): the process was told to end")
        await run.finish()

    train(counting(checkpoint={"everySeconds": 3600}), scenario, MODULES)


@pytest.mark.timeout(60)
def test_learners_do_more_together_than_sums(train: Train) -> None:
    names = ("size", "largest", "smallest", "last")

    async def scenario(run: Run) -> None:
        await eventually(
            lambda: [run.points and run.points[-1].get(f"loss/{name}") for name in names] == [2, 1, 0, 1]
        )
        await run.finish()

    train(
        counting(algorithm={"entryPoint": {"module": "together"}}, learner={"replicas": 2}), scenario, MODULES
    )


@pytest.mark.timeout(90)
@pytest.mark.parametrize("victim", [LEARNER, OTHER])
def test_one_of_two_learners_is_killed_and_the_newest_state_lives_on(train: Train, victim: str) -> None:
    async def scenario(run: Run) -> None:
        await run.until_ready()
        await run.until(lambda job: job.status.checkpoint is not None)
        await until_updates(run, 50)
        before, log = run.points[-1]["updates"], run.cluster.workdir / "logs" / f"{LEARNER}.log"
        formed = log.read_text().count("learners 0, 1")
        run.kill(victim)
        await run.until(lambda job: job.status.learner.restarts == 1)
        await eventually(lambda: log.read_text().count("learners 0, 1") > formed)
        points = len(run.points)
        await eventually(lambda: len(run.points) > points and run.points[-1]["updates"] >= before + 50)
        assert min(point["updates"] for point in run.points[points:]) >= before
        curve = [total for _, total in totals(run)]
        assert curve == sorted(curve)
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.failures) == (0, 0)

    train(counting(learner={"replicas": 2}), scenario, MODULES)


SAMPLER_ONLY = "def sampler(world):\n    pass\n"


def looping(line: str) -> str:
    """A learner that does this until the run is over."""
    return f"def learner(world):\n    run = world.run()\n    while run.goes_on():\n        {line}\n"


ASKING = looping('world.members("sampler").call("play")')
MISTAKES = {
    "missing": "",
    "no_function": SAMPLER_ONLY,
    "learner_raises": SAMPLER_ONLY
    + "def learner(world):\n    world.run()\n    raise ValueError('no gradient')\n",
    "handler_raises": ASKING
    + """
def sampler(world):
    world.register("play", lambda caller, payload: payload["steps"])
""",
    "no_service": "def learner(world):\n    world.run()\n    world.members('sampler')[0].call('play')\n"
    + SAMPLER_ONLY,
    "no_run": "def learner(world):\n    pass\n" + SAMPLER_ONLY,
    "environment_raises": looping('world.members("sampler").call("play", timeout=1.0)')
    + """
def sampler(world):
    environments = world.environments()
    def play(caller, payload):
        environments.reset(None)
        for _ in range(60):
            environments.step(environments.environments.action_space.sample())
    world.register("play", play)
""",
    "bad_answer": ASKING
    + """
import numpy as np
def sampler(world):
    world.register("play", lambda caller, payload: {"gradient": np.zeros(3)})
""",
    "bad_count": looping("run.update(-5)") + SAMPLER_ONLY,
    "bad_return": looping('run.update(10, [float("nan")])') + SAMPLER_ONLY,
    "bad_payload": """
import numpy as np
def learner(world):
    world.run()
    world.share("policy", {"weights": np.zeros(3)})
"""
    + SAMPLER_ONLY,
}
WHERE = "spec.algorithm.entryPoint: "
CASES = {
    "no such module": Case(
        {"module": "labyrinth"},
        "UserCodeError",
        f"{WHERE}module 'labyrinth' is not there: put it beside the manifest, in spec.code, or in the image",
    ),
    "no such function": Case(
        {"module": "no_function"},
        "UserCodeError",
        f"{WHERE}module 'no_function' has no function learner(world): it must define learner and sampler",
    ),
    "learner raises": Case(
        {"module": "learner_raises"},
        "UserCodeError",
        "learner(world) of module 'learner_raises' raised ValueError: no gradient",
        ["learner_raises.py", "line 5, in learner"],
    ),
    "handler raises": Case(
        {"module": "handler_raises"},
        "UserCodeError",
        "service 'play' raised TypeError: 'NoneType' object is not subscriptable",
        ["handler_raises.py", 'payload["steps"]'],
    ),
    "no such service": Case(
        {"module": "no_service"},
        "UserCodeError",
        "learner(world) of module 'no_service' raised RemoteError: demo-sampler-0 has no service 'play', only []",
        ["no_service.py"],
    ),
    "no run": Case(
        {"module": "no_run"},
        "UserCodeError",
        "learner(world) returned before it began the run: call world.run() in it",
    ),
    "environment raises in a handler": Case(
        {"module": "environment_raises"},
        "UserCodeError",
        "environment 'mazes:Step-v0': step raised ValueError: the maze has no exit",
        ["mazes.py"],
    ),
    "answer that cannot be sent": Case(
        {"module": "bad_answer"},
        "UserCodeError",
        "the answer of service 'play' is refused: a ndarray cannot be sent: use tensors and plain values",
    ),
    "no count": Case(
        {"module": "bad_count"},
        "UserCodeError",
        "learner(world) of module 'bad_count' raised ValueError: steps must be at least 0, not -5",
        ["bad_count.py", "run.update(-5)"],
    ),
    "return is NaN": Case({"module": "bad_return"}, "Diverged", "a return is nan at update 1"),
    "what cannot be sent": Case(
        {"module": "bad_payload"},
        "UserCodeError",
        "learner(world) of module 'bad_payload' raised TypeError: a ndarray cannot be sent: use tensors and plain values",
        ["bad_payload.py"],
    ),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_mistake_ends_the_job_at_once_with_its_message(train: Train, case: Case) -> None:
    job = small_job(
        algorithm={"entryPoint": case.spec}, environment={"id": "mazes:Step-v0", "numEnvs": 2}, code=CODE
    )

    async def scenario(run: Run) -> None:
        assert (await run.until_ended()).status.phase == "Failed"
        failed = run.condition("Failed")
        assert failed is not None
        assert failed.reason == case.reason
        _, _, message = failed.message.partition(": ")
        assert message.startswith(case.message), message
        for words in case.trace:
            assert words in message
        assert all(len(pids) == 1 for pids in run.pids.values()), "restarted"

    train(job, scenario, code(mazes=BASE, **{name: text for name, text in MISTAKES.items() if text}))
