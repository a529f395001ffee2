"""The examples, as people run them, a short while each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rltrain_command import Ended, rltrain
from rltraining_trainer.policy import Policy, evaluate

EXAMPLES = Path(__file__).parents[2] / "examples"
AT_ONCE = 2
"""Runs beside each other: half of each is one process that loads torch."""

STEPS = {
    "cartpole-dqn-apex": 20_000,
    "pendulum-ddpg-apex": 12_000,
    "cartpole-two-learners": 60_000,
    "pong-impala": 400,
    "breakout-impala": 80,
    "breakout-dqn-apex": 600,
    "pong-dqn-apex": 600,
}
TRAJECTORY_STEPS = {
    "acrobot-impala": 30_000,
    "pendulum-impala": 20_000,
    "memory-cartpole-impala": 20_000,
    "cartpole-own-algorithm": 2_000,
}
ASYNC_STEPS = {
    "cartpole-a3c": 100_000,
    "cartpole-a3c-published": 5_000,
    "memory-cartpole-a3c": 50_000,
    "cartpole-two-holders": 100_000,
    "pong-a3c": 200,
    "breakout-a3c": 200,
}
SYNC_STEPS = {"cartpole-a2c": 100_000, "cartpole-ppo": 30_000, "pendulum-ppo": 10_000}
"""Environment steps of about a second of training."""
ATARI = ("environment.numEnvs=2", "environment.maxEpisodeSteps=20", "sampler.replicas=1")
APEX_OF_ATARI = tuple(
    f"algorithm.dqnApex.{setting}"
    for setting in ("batchSize=16", "replay.minimum=200", "replay.samplesPerInsert=1")
)
"""Samplers wait for the learner: else 600 steps may be over before it has drawn often enough to send priorities back."""


@dataclass(frozen=True)
class Run:
    """An example that has been run, in `folder`/run."""

    folder: Path
    ended: Ended

    @property
    def status(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "run" / "status.json").read_text())["status"])

    @property
    def points(self) -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in (self.folder / "run" / "progress.jsonl").read_text().splitlines()
        ]


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Run]]]:
    """By the name of the example: those that are asked for."""
    items = [item for item in request.session.items if item.path == Path(__file__)]
    asked = (item.callspec.params["example"] for item in items if hasattr(item, "callspec"))
    steps = STEPS | TRAJECTORY_STEPS | ASYNC_STEPS | SYNC_STEPS
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            name: pool.submit(_run, name, steps[name], tmp_path_factory.mktemp(name))
            for name in dict.fromkeys(asked)
        }
        pool.shutdown(cancel_futures=True)


def _run(example: str, steps: int, folder: Path) -> Run:
    changes = [f"stop.environmentSteps={steps}", "stop.meanReturn=null", "stop.smoothedReturn=null"]
    if example.startswith(("pong", "breakout")):
        changes += [*ATARI, *(APEX_OF_ATARI if "apex" in example else ())]
    settings = [word for change in changes for word in ("--set", change)]
    return Run(folder, rltrain(folder, "run", EXAMPLES / f"{example}.yaml", "--workdir", "run", *settings))


def test_every_example_is_run() -> None:
    run_here = {*STEPS, *TRAJECTORY_STEPS, *ASYNC_STEPS, *SYNC_STEPS}
    in_the_pages = {"cartpole-impala"}  # test_docs_commands.py runs what the pages run
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == run_here | in_the_pages


@pytest.mark.parametrize("example", STEPS)
def test_an_example_runs_and_its_policy_can_be_used(runs: dict[str, Future[Run]], example: str) -> None:
    run = runs[example].result()
    status = ended_well(run, STEPS[example])
    if "apex" in example:
        memory = status["replay"]
        assert memory["inserted"] == memory["size"] + memory["evicted"] + memory["lost"]
        assert memory["prioritiesApplied"] > 0
        assert "drawn" in run.ended.out

    evaluated = rltrain(run.folder, "evaluate", "run/policy", "--episodes", "2")
    assert evaluated.code == 0, evaluated


@pytest.mark.parametrize("example", TRAJECTORY_STEPS)
def test_an_example_of_unrolls_or_of_an_algorithm_of_ones_own_runs(
    runs: dict[str, Future[Run]], example: str
) -> None:
    run = runs[example].result()
    ended_well(run, TRAJECTORY_STEPS[example])
    for point in run.points:
        if "unrolls/pushed" in point:
            counts = {name: point[f"unrolls/{name}"] for name in ("pushed", "used", "dropped", "queued")}
            assert counts["pushed"] == counts["used"] + counts["dropped"] + counts["queued"], counts


@pytest.mark.parametrize("example", ASYNC_STEPS)
def test_an_example_of_gradients_as_they_come_runs(runs: dict[str, Future[Run]], example: str) -> None:
    run = runs[example].result()
    ended_well(run, ASYNC_STEPS[example])
    for point in accounts(run):
        assert point["updates"] == point["gradients/applied"]
        assert point["gradients/dropped"] == 0


@pytest.mark.parametrize("example", SYNC_STEPS)
def test_an_example_of_gradients_in_step_runs(runs: dict[str, Future[Run]], example: str) -> None:
    run = runs[example].result()
    status = ended_well(run, SYNC_STEPS[example])
    samplers = status["sampler"]["replicas"]
    for point in accounts(run):
        assert point["updates"] <= point["gradients/applied"] <= samplers * point["updates"]
    assert status["progress"]["policyLag"] == 0


@pytest.mark.parametrize("example", [*ASYNC_STEPS, *SYNC_STEPS])
def test_a_policy_that_was_learnt_from_gradients_plays(
    runs: dict[str, Future[Run]], example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    policy = Policy.load(str(runs[example].result().folder / "run" / "policy"))
    assert len(evaluate(policy, 2).episodes) == 2


def ended_well(run: Run, steps: int) -> dict[str, Any]:
    """Returns the status."""
    assert run.ended.code == 0, run.ended
    status = run.status
    progress = status["progress"]
    assert progress["environmentSteps"] >= steps
    assert progress["updates"] > 0
    assert status["learner"]["indices"] == ("0-1" if "two" in run.folder.name else "0")
    assert status["restarts"] == status["failures"] == 0
    return status


def accounts(run: Run) -> list[dict[str, Any]]:
    """The points of the curves: the gradients of each add up, and the last is what the status says."""
    points, progress = run.points, run.status["progress"]
    for point in points:
        counts = {name: point[f"gradients/{name}"] for name in ("pushed", "applied", "dropped", "queued")}
        assert min(counts.values()) >= 0, counts
        assert counts["pushed"] == counts["applied"] + counts["dropped"] + counts["queued"], counts
        assert point["gradients/stale"] <= counts["dropped"]
    for name in ("environmentSteps", "updates", "episodes"):
        assert points[-1][name] == progress[name], name
    return points
