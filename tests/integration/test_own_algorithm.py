"""A user's own algorithm in real processes: learning, loss of members, and reported errors."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rltraining_api.contract import METRICS_PATH
from rltraining_api.job import RLTrainingJob
from rltraining_operator.local import backoff
from small_jobs import CODE, code, small_job
from training import LEARNER, OTHER_LEARNER, SAMPLER, SAMPLERS, Run, Train, eventually, step_of
from transport_processes import HANG_SECONDS
from user_errors import BASE, Case

EXAMPLE = (Path(__file__).parents[2] / "examples" / "reinforce.py").read_text()

COUNTING = """
import time
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
    while run.active():
        group, own = world.group, torch.tensor([7, world.index])
        mine = world.members("sampler").part(group.rank, group.size)
        counts = [count for count in mine.call("count", run.updates, timeout=1.0) if count is not None]
        try:
            steps = torch.tensor([float(sum(counts))])
            group.sum(steps, 1)
            largest = group.maximum([world.index, -world.index])
            group.broadcast(own, group.size - 1)
            group.barrier()
        except GroupChanged:
            continue
        total.value += int(steps)
        run.update(
            sum(counts), members=len(mine), answers=len(counts), total=total.value,
            size=group.size, largest=largest[0], smallest=-largest[1], last=own[1],
        )

def sampler(world):
    def count(caller, updates):
        time.sleep(0.005)
        return world.parameters["each"]

    world.register("count", count)
"""
"""Counts in step, keeps the sum in its own state, and logs the group's reductions of numbers."""


DYING = COUNTING.replace(
    "    while run.active():\n",
    """    died = Path(world.parameters["died"])
    while run.active():
        dies = world.index == world.parameters["dies"] and world.group.size == 2 and run.updates >= 40
        if dies and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
""",
).replace("import time\n", "import os\nimport signal\nimport time\nfrom pathlib import Path\n")
"""The same, but one of two learners kills itself once, after a round and before the sum of the update."""


def counting(
    module: str = "counting", parameters: Mapping[str, Any] | None = None, **spec: Any
) -> RLTrainingJob:
    entry_point = {"module": module, "parameters": {"each": 8} | dict(parameters or {})}
    return small_job(
        **({"algorithm": {"entryPoint": entry_point}, "code": CODE, "sampler": {"replicas": 2}} | spec)
    )


PATIENT = EXAMPLE.replace("timeout=5.0", "timeout=60.0")
"""The example, which waits longer for samplers of a busy machine."""
assert PATIENT != EXAMPLE
MODULES = code(counting=COUNTING, dying=DYING, reinforce=PATIENT)


def totals(run: Run) -> list[tuple[int, int]]:
    """Returns the run's counts and the algorithm's counts."""
    return [
        (point["environmentSteps"], int(point["loss/total"])) for point in run.points if "loss/total" in point
    ]


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
        status = (await run.until_succeeded()).status
        assert status.message is not None
        assert "stop.meanReturn is met" in status.message
        assert (status.progress.episodes, status.restarts) == (2 * 16 * status.progress.updates, 0)
        policy = json.loads((run.cluster.workdir / "policy" / "policy.json").read_text())
        assert policy["algorithm"] == "entryPoint"

    train(job, scenario, MODULES)


def test_members_are_killed_told_to_end_and_become_more(train: Train) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()

        # A sampler that is killed is called again when it is back.
        learner = run.running(LEARNER)
        run.kill(SAMPLER)
        await run.until(lambda job: job.status.sampler.restarts == 1 and run.pod(SAMPLER).ready)
        lines = len(run.points)
        await eventually(lambda: any(point["loss/answers"] == 2 for point in run.points[lines:]))

        # Scale up the samplers.
        await run.cluster.update_spec(run.key, {"sampler": {"replicas": 3}})
        await eventually(lambda: run.point["loss/answers"] == run.point["loss/members"] == 3)
        assert run.running(LEARNER) == learner

        # A learner that is killed continues from its checkpoint.
        checkpoint = await run.until_checkpoint()
        pids, life = run.running(*SAMPLERS), run.point["run"]
        run.kill(LEARNER)
        fresh = await run.until_another_life(life)
        assert fresh["environmentSteps"] >= checkpoint > 0
        assert all(steps == total for steps, total in totals(run)), "state and counts are of one moment"

        # A learner that receives SIGTERM writes a checkpoint.
        await run.until_ready()
        await run.until_updates(50)
        steps = run.steps
        run.kill(LEARNER, signal.SIGTERM)
        await run.until(lambda job: job.status.learner.restarts == 2)
        assert step_of(run.checkpoints()[-1]) >= steps
        await run.until_steps()
        assert run.steps > steps
        ends = [known.event.message for known in run.cluster.events if known.event.reason == "Disrupted"]
        assert ends[-1].endswith("exit code 143 (SIGTERM): the process was asked to end")
        assert run.running(*SAMPLERS) == pids
        status = (await run.finish()).status
        assert (status.learner.restarts, status.sampler.restarts, status.failures) == (2, 1, 0)

    train(counting(), scenario, MODULES)


def test_one_of_two_learners_is_killed_and_the_newest_state_lives_on(train: Train) -> None:
    def formed(run: Run) -> int:
        return run.log(LEARNER).count("learners 0, 1")

    def together(run: Run) -> list[Any]:
        return [run.point.get(f"loss/{name}") for name in ("size", "largest", "smallest", "last")]

    async def scenario(run: Run) -> None:
        await run.until_learning()
        await eventually(lambda: together(run) == [2, 1, 0, 1])
        for restarts, victim in enumerate((OTHER_LEARNER, LEARNER), 1):
            await run.until_checkpoint()
            await run.until_updates(50)
            before, groups = run.point["updates"], formed(run)
            run.kill(victim)
            await run.until(lambda job, restarts=restarts: job.status.learner.restarts == restarts)
            await eventually(lambda groups=groups: formed(run) > groups)
            points = len(run.points)
            await eventually(
                lambda points=points, before=before: (
                    len(run.points) > points and run.point["updates"] >= before + 50
                )
            )
            assert min(point["updates"] for point in run.points[points:]) >= before
        curve = [total for _, total in totals(run)]
        assert curve == sorted(curve)
        status = (await run.finish()).status
        assert (status.sampler.restarts, status.failures) == (0, 0)

    train(counting(learner={"replicas": 2}), scenario, MODULES)


@pytest.mark.parametrize("victim", [0, 1])
def test_all_steps_of_the_updates_are_counted_although_a_learner_is_killed(
    train: Train, tmp_path: Path, victim: int
) -> None:
    async def scenario(run: Run) -> None:
        await run.until(lambda job: job.status.learner.restarts == 1)
        await eventually(lambda: run.point.get("loss/size") == 2)
        await run.until_updates(50)
        status = (await run.finish()).status
        steps, total = totals(run)[-1]
        assert steps <= total == status.progress.environment_steps
        assert step_of(run.checkpoints()[-1]) == total
        assert status.failures == 0

    parameters = {"dies": victim, "died": str(tmp_path / "died")}
    job = counting("dying", parameters, learner={"replicas": 2}, checkpoint={"everySeconds": 3600})
    train(job, scenario, MODULES)


SAMPLER_ONLY = "def sampler(world):\n    pass\n"


def looping(line: str) -> str:
    """Returns a learner that executes this line until the run is over."""
    return f"def learner(world):\n    run = world.run()\n    while run.active():\n        {line}\n"


ASKING = looping('world.members("sampler").call("play")')
MISTAKES = {
    "missing": "",
    "learner_raises": SAMPLER_ONLY
    + "def learner(world):\n    world.run()\n    raise ValueError('no gradient')\n",
    "handler_raises": ASKING
    + """
def sampler(world):
    world.register("play", lambda caller, payload: payload["steps"])
""",
    "no_run": "def learner(world):\n    pass\n" + SAMPLER_ONLY,
    "no_start": """
def learner(world):
    queue = world.trajectories()
    run = world.run()
    while run.active():
        queue.get(1)

def sampler(world):
    world.trajectories()
""",
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
    "bad_return": looping('run.update(10, [float("nan")])') + SAMPLER_ONLY,
}
WHERE = "spec.algorithm.entryPoint: "
CASES = {
    "no such module": Case(
        {"module": "labyrinth"},
        "UserCodeError",
        f"{WHERE}module 'labyrinth' is not there: put it beside the manifest, in spec.code, or in the image",
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
    "no run": Case(
        {"module": "no_run"},
        "UserCodeError",
        "learner(world) returned before it began the run: call world.run() in it",
    ),
    "no start": Case(
        {"module": "no_start"},
        "UserCodeError",
        "sampler(world) returned before it sent data: call world.start(parameters) in it",
    ),
    "environment raises in a handler": Case(
        {"module": "environment_raises"},
        "UserCodeError",
        "environment 'mazes:Step-v0': step raised ValueError: the maze has no exit",
        ["mazes.py"],
    ),
    "return is NaN": Case({"module": "bad_return"}, "Diverged", "a return is nan at update 1"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_mistake_ends_the_job_at_once_with_its_message(
    train: Train, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    monkeypatch.setattr(backoff, "FIRST_SECONDS", HANG_SECONDS)  # longer than a busy operator takes
    job = small_job(
        algorithm={"entryPoint": case.spec}, environment={"id": "mazes:Step-v0", "numEnvs": 2}, code=CODE
    )

    train(job, case.check, code(mazes=BASE, **{name: text for name, text in MISTAKES.items() if text}))
