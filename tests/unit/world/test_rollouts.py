"""The learner's side of rollouts: which rollouts make an update, the counts and the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gradient_learners import A2C, A3C, PPO, SPACES, Learners, Sampler, make
from rltraining_api.network import Network
from rltraining_trainer.dataflow import NO_MOMENTS
from rltraining_trainer.networks import build_actor_critic

T, B = 5, 2
PPO_AT_LEARNER = PPO | {"gradients": "Learner", "rolloutLength": T, "targetKl": None}
A2C_AT_LEARNER = A2C | {"gradients": "Learner", "rolloutLength": T}
A3C_AT_LEARNER = A3C | {"gradients": "Learner", "rolloutLength": T}


def make_rollout(seed: int) -> dict[str, Any]:
    """Random steps of a uniform policy with one invalid step and two ended episodes."""
    random = torch.Generator().manual_seed(seed)
    _, distribution = build_actor_critic(Network.default(), *SPACES)
    action = torch.randint(2, (T, B), generator=random)
    valid = torch.ones(T, B, dtype=torch.bool)
    valid[1, 1] = False
    return {
        "observation": torch.randn(T + 1, B, 3, generator=random),
        "action": action,
        "log_prob": distribution.log_prob(torch.zeros(T, B, 2), action),
        "reward": torch.randn(T, B, generator=random),
        "ended": torch.zeros(T, B, dtype=torch.bool),
        "valid": valid,
        "first": torch.zeros(T + 1, B, dtype=torch.bool),
        "state": (),
        "moments": NO_MOMENTS,
        "episodes": torch.ones(B, dtype=torch.int64),
        "episode_return": torch.ones(2),
        "episode_length": torch.full((2,), 7),
    }


def counts(learners: Learners) -> dict[str, float | None]:
    (path,) = learners.paths
    return {name.removeprefix("unrolls/"): count for name, count in path.metrics().items()}


def start(folder: Path, algorithm: dict[str, Any], samplers: int = 2) -> tuple[Learners, list[Sampler]]:
    return make(folder, algorithm, count=1, samplers=samplers)


@pytest.mark.parametrize(
    ("algorithm", "updates"), [({"ppo": PPO_AT_LEARNER}, 4), ({"a2c": A2C_AT_LEARNER}, 1)], ids=["ppo", "a2c"]
)
def test_rollouts_of_all_samplers_make_all_updates_and_each_sampler_gets_the_same_parameters(
    tmp_path: Path, algorithm: dict[str, Any], updates: int
) -> None:
    ((kind, settings),) = algorithm.items()
    waits = {"aggregate": {"deadlineSeconds": 3600}}  # for the other sampler, however busy the machine is
    learners, samplers = start(tmp_path, {kind: settings | waits})
    version = learners.runs[0].models.version
    samplers[0].push_rollout(make_rollout(0))
    assert not learners.round()
    samplers[1].push_rollout(make_rollout(1))
    assert learners.round()

    (server,) = learners.servers
    assert server.updates == updates
    assert learners.runs[0].models.version == version + 1, "published once"
    for sampler in samplers:
        (answer,) = sampler.last
        assert (answer["used"], answer["place"][1:]) == (True, (1, 0))
        assert torch.equal(answer["parameters"], server.parameters)
    assert counts(learners) == {"pushed": 2, "used": 2, "dropped": 0, "queued": 0, "stale": 0}
    assert learners.runs[0].counted == [(T * B - 1, 2, 0)] * 2
    assert server.environment_steps == 2 * (T * B - 1)


def test_a_rollout_that_arrives_after_the_update_is_rejected(tmp_path: Path) -> None:
    learners, (first, second) = start(tmp_path, {"ppo": PPO_AT_LEARNER})
    first.push_rollout(make_rollout(0))
    assert learners.round(timeout=5), "the deadline"
    parameters = learners.parameters
    second.push_rollout(make_rollout(1))
    assert second.last[0]["used"] is False
    assert second.last[0]["place"] == first.last[0]["place"], "it continues with the others"
    assert torch.equal(learners.parameters, parameters)
    assert counts(learners) == {"pushed": 2, "used": 1, "dropped": 1, "queued": 0, "stale": 1}


def test_each_rollout_of_an_asynchronous_sampler_makes_an_update(tmp_path: Path) -> None:
    learners, samplers = start(tmp_path, {"a3c": A3C_AT_LEARNER})
    for number, sampler in enumerate(samplers):
        sampler.push_rollout(make_rollout(number))
    for _ in samplers:
        assert learners.round()
    assert learners.servers[0].updates == 2
    assert [lag for _, _, lag in learners.runs[0].counted] == [0, 1]
    assert counts(learners)["used"] == 2


def test_a_restarted_learner_keeps_its_counts_and_rejects_old_rollouts(
    tmp_path: Path,
) -> None:
    learners, (sampler, _) = start(tmp_path, {"ppo": PPO_AT_LEARNER})
    sampler.push_rollout(make_rollout(0))
    assert learners.round(timeout=5)
    kept, state = learners.paths[0].get_state(), learners.servers[0].get_state()

    later, (same, _) = start(tmp_path, {"ppo": PPO_AT_LEARNER})
    later.paths[0].set_state(kept)
    later.servers[0].set_state(state)
    assert counts(later) == counts(learners)
    assert torch.equal(later.parameters, learners.parameters)
    same.answers[0].append(sampler.last[0] | {"place": ("life before", 1, 0)})
    same.incarnation = "b"
    same.push_rollout(make_rollout(1))
    assert same.last[0]["used"] is False
    assert counts(later) == {"pushed": 2, "used": 1, "dropped": 1, "queued": 0, "stale": 1}


def test_an_unroll_of_another_job_is_refused_and_not_counted(tmp_path: Path) -> None:
    learners, (sampler, _) = start(tmp_path, {"ppo": PPO_AT_LEARNER})
    longer = make_rollout(0) | {"reward": torch.zeros(T + 1, B)}
    with pytest.raises(ValueError, match=r"the field unroll\.reward must be"):
        sampler.push_rollout(longer)
    assert counts(learners)["pushed"] == 0


@pytest.mark.parametrize(
    ("algorithm", "updates"), [({"ppo": PPO_AT_LEARNER}, 4), ({"a2c": A2C_AT_LEARNER}, 1)], ids=["ppo", "a2c"]
)
def test_two_learners_make_the_same_number_of_updates_with_equal_parameters(
    tmp_path: Path, algorithm: dict[str, Any], updates: int
) -> None:
    """Each learner has its samplers' rollouts. In the second round one learner has none."""
    learners, samplers = make(tmp_path, algorithm, count=2)
    for number, sampler in enumerate(samplers):
        sampler.push_rollout(make_rollout(number))
    assert learners.round(timeout=5)
    for rounds in (1, 2):
        assert [server.updates for server in learners.servers] == [rounds * updates] * 2
        steps = (2 if rounds == 1 else 3) * (T * B - 1)
        assert [server.environment_steps for server in learners.servers] == [steps] * 2
        assert torch.equal(*[server.parameters for server in learners.servers])
        if rounds == 1:
            samplers[0].push_rollout(make_rollout(2))
            while not learners.round(timeout=0.02):  # until the deadline of the other learner's samplers
                pass
    counted = [path.metrics()["unrolls/used"] for path in learners.paths]
    assert counted == [2, 1]
