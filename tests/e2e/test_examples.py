"""Each example trains for at most a second. The runs are forks of one process that has imported torch, as in a sweep.
test_docs_commands.py and test_run.py start `rltrain run` itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rltraining.history import Row, read
from rltraining.jobfile import load
from rltraining.session import TRAINER, StopRequest, name_code_folder, train_on
from rltraining_api.contract import ENV_MANIFEST_DIR
from rltraining_api.job import RLTrainingJob
from rltraining_operator.local import SharedRuntime, WarmRuntime
from rltraining_trainer.policy import Policy, evaluate

EXAMPLES = Path(__file__).parents[2] / "examples"

STEPS = {
    "acrobot-impala": 30_000,
    "breakout-a3c": 200,
    "breakout-dqn-apex": 300,
    "breakout-impala": 80,
    "cartpole-a2c": 50_000,
    "cartpole-a3c": 50_000,
    "cartpole-a3c-published": 5_000,
    "cartpole-dqn-apex": 20_000,
    "cartpole-own-algorithm": 2_000,
    "cartpole-own-dqn": 4_000,
    "cartpole-ppo": 30_000,
    "cartpole-two-holders": 50_000,
    "cartpole-two-learners": 30_000,
    "memory-cartpole-a3c": 25_000,
    "memory-cartpole-impala": 20_000,
    "memory-cartpole-r2d2": 9_000,
    "pendulum-ddpg-apex": 12_000,
    "pendulum-impala": 20_000,
    "pendulum-ppo": 10_000,
    "pendulum-sac": 1_500,
    "pendulum-td3": 1_500,
    "pong-a3c": 200,
    "pong-dqn-apex": 300,
    "pong-impala": 400,
    "zoo/cartpole-impala": 20_000,
    "zoo/lunarlander-ppo": 2_000,
    "zoo/minigrid-doorkey-ppo": 2_000,
    "zoo/mountaincar-dqn-apex": 2_000,
    "zoo/pong-ppo": 256,
    "zoo/walker2d-ppo": 2_000,
}
"""Environment steps of at most a second of training."""
IN_THE_PAGES = {"cartpole-impala", "zoo/cartpole-ppo"}
"""test_docs_commands.py runs them."""
LIKE_OTHERS = {f"zoo/{task}-ppo" for task in ("acrobot", "halfcheetah", "hopper", "lunarlandercontinuous")}
LIKE_OTHERS |= {
    "zoo/mountaincarcontinuous-ppo",
    "zoo/halfcheetah-sac",
    "zoo/halfcheetah-td3",
    "zoo/hopper-sac",
    "pong-ppo-gpu",
}
"""These differ from other examples in nothing but the environment, numbers, pods, and what a checkpoint contains.
test_docs_manifests.py checks that they are valid."""
ATARI = ("environment.numEnvs=2", "environment.maxEpisodeSteps=20", "sampler.replicas=1")
APEX_OF_ATARI = tuple(
    f"algorithm.dqnApex.{setting}"
    for setting in ("batchSize=16", "replay.minimum=100", "replay.samplesPerInsert=1")
)
"""Samplers wait for the learner. Otherwise the 300 steps may end before the learner has returned any priorities."""

Train = Callable[..., RLTrainingJob]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Train]:
    """Trains an example in a folder. Returns the finished job."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setenv(ENV_MANIFEST_DIR, "")  # restored at the end
        patch.syspath_prepend(EXAMPLES)
        name_code_folder(EXAMPLES)
        runtime = WarmRuntime(TRAINER)
        runner.run(runtime.open(tmp_path_factory.mktemp("runtime") / "log"))

        def train(example: str, folder: Path, *changes: str) -> RLTrainingJob:
            file = load(str(EXAMPLES / f"{example}.yaml"), [*_changes(example), *changes])
            run = train_on(SharedRuntime(runtime), StopRequest(), file, folder, lambda _: None)
            return runner.run(run).job

        yield train
        runner.run(runtime.close())


def _changes(example: str) -> list[str]:
    changes = [
        f"stop.environmentSteps={STEPS.get(example, 5_000)}",
        "stop.meanReturn=null",
        "stop.smoothedReturn=null",
    ]
    if example.startswith(("pong", "breakout")):
        changes += [*ATARI, *(APEX_OF_ATARI if "apex" in example else ())]
    if example in ("pendulum-sac", "pendulum-td3"):
        # Learning begins after 1,000 steps, and may lag behind by a tenth of them.
        changes.append(f"algorithm.{example.removeprefix('pendulum-')}.replay.minimum=1000")
    return changes


def test_every_example_is_run() -> None:
    examples = {path.relative_to(EXAMPLES).with_suffix("").as_posix() for path in EXAMPLES.rglob("*.yaml")}
    assert examples == {*STEPS, *IN_THE_PAGES, *LIKE_OTHERS}


@pytest.mark.parametrize("example", STEPS)
def test_an_example_trains_and_its_policy_plays(train: Train, tmp_path: Path, example: str) -> None:
    job = train(example, tmp_path)
    status, progress = job.status, job.status.progress
    assert status.phase == "Succeeded", status
    assert progress is not None
    assert progress.environment_steps >= STEPS[example]
    assert progress.updates > 0
    assert status.learner.indices == ("0-1" if "two" in example else "0")
    assert status.restarts == status.failures == 0
    if status.replay is not None:
        assert status.replay.inserted == status.replay.size + status.replay.evicted + status.replay.lost
        assert status.replay.priorities_applied > 0
    points = read(tmp_path)
    for point in points:
        check_counters(job.spec.algorithm.parameters, job.spec.sampler.replicas, point)
    if "gradients/pushed" in points[-1]:
        for name in ("environmentSteps", "updates", "episodes"):
            assert points[-1][name] == progress.to_dict()[name], name
    policy = Policy.load(str(tmp_path / "policy"), trust_code=True)
    assert len(evaluate(policy, 2).episodes) == 2


def check_counters(settings: Any, samplers: int, point: Row) -> None:
    """Every unroll and every gradient is counted exactly once; an asynchronous update applies one gradient, a synchronous
    one at most one of each sampler."""
    if "unrolls/pushed" in point:
        counts = {name: point[f"unrolls/{name}"] for name in ("pushed", "used", "dropped", "queued")}
        assert counts["pushed"] == counts["used"] + counts["dropped"] + counts["queued"], counts
    if "gradients/pushed" not in point:
        return
    counts = {name: point[f"gradients/{name}"] for name in ("pushed", "applied", "dropped", "queued")}
    assert min(counts.values()) >= 0, counts
    assert counts["pushed"] == counts["applied"] + counts["dropped"] + counts["queued"], counts
    assert point["gradients/stale"] <= counts["dropped"]
    if settings.aggregate.mode == "Async":
        assert point["updates"] == counts["applied"]
        # A busy machine may hold a sampler up until its gradient is too old.
        limited = settings.aggregate.max_policy_lag is not None
        assert counts["dropped"] == (point["gradients/stale"] if limited else 0)
    else:
        assert point["updates"] <= counts["applied"] <= samplers * point["updates"]
        assert point["policyLag"] == 0


@pytest.mark.parametrize("example", ["cartpole-a2c", "zoo/cartpole-ppo"])
def test_a_synchronous_run_with_two_samplers_gives_the_same_policy_again(
    train: Train, tmp_path: Path, example: str
) -> None:
    """See docs/stability.md."""
    # An update must wait for both samplers, however busy the machine is.
    algorithm = "a2c" if example.endswith("a2c") else "ppo"
    patience = f"algorithm.{algorithm}.aggregate.deadlineSeconds=600"
    jobs = [train(example, tmp_path / name, patience) for name in ("first", "second")]
    assert jobs[0].spec.sampler.replicas == 2
    assert jobs[0].status.progress.updates == jobs[1].status.progress.updates > 1
    first, second = (torch.load(tmp_path / name / "policy" / "weights.pt") for name in ("first", "second"))
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
