"""The learner's side of rollouts: the choice of rollouts for an update, the counts and the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gradient_holders import A2C, A3C, PPO, SPACES, Holders, Sampler, make
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


def counts(holders: Holders) -> dict[str, float | None]:
    (flow,) = holders.flows
    return {name.removeprefix("unrolls/"): count for name, count in flow.metrics().items()}


def start(folder: Path, algorithm: dict[str, Any], samplers: int = 2) -> tuple[Holders, list[Sampler]]:
    return make(folder, algorithm, count=1, samplers=samplers)


@pytest.mark.parametrize(
    ("algorithm", "updates"), [({"ppo": PPO_AT_LEARNER}, 4), ({"a2c": A2C_AT_LEARNER}, 1)], ids=["ppo", "a2c"]
)
def test_a_rollout_of_each_sampler_makes_all_updates_and_both_get_the_same_parameters(
    tmp_path: Path, algorithm: dict[str, Any], updates: int
) -> None:
    holders, samplers = start(tmp_path, algorithm)
    version = holders.models[0].version
    samplers[0].push_rollout(make_rollout(0))
    assert not holders.round()
    samplers[1].push_rollout(make_rollout(1))
    assert holders.round()

    (flow,) = holders.flows
    assert flow.algorithm.updates == updates
    assert holders.models[0].version == version + 1, "published once"
    for sampler in samplers:
        (answer,) = sampler.last
        assert (answer["used"], answer["place"][1:]) == (True, (1, 0))
        assert torch.equal(answer["parameters"], flow.algorithm.parameters)
    assert counts(holders) == {"pushed": 2, "used": 2, "dropped": 0, "queued": 0, "stale": 0}
    told = [(one.steps, one.episodes, one.lag) for one in flow.experiences()]
    assert told == [(T * B - 1, 2, 0)] * 2
    assert flow.algorithm.environment_steps == 2 * (T * B - 1)


def test_a_rollout_that_arrives_after_the_update_is_rejected(tmp_path: Path) -> None:
    holders, (first, second) = start(tmp_path, {"ppo": PPO_AT_LEARNER})
    first.push_rollout(make_rollout(0))
    assert holders.round(timeout=5), "the deadline"
    parameters = holders.parameters
    second.push_rollout(make_rollout(1))
    assert second.last[0]["used"] is False
    assert second.last[0]["place"] == first.last[0]["place"], "it goes on with the others"
    assert torch.equal(holders.parameters, parameters)
    assert counts(holders) == {"pushed": 2, "used": 1, "dropped": 1, "queued": 0, "stale": 1}


def test_samplers_that_do_not_wait_for_each_other_have_an_update_each(tmp_path: Path) -> None:
    holders, samplers = start(tmp_path, {"a3c": A3C_AT_LEARNER})
    for number, sampler in enumerate(samplers):
        sampler.push_rollout(make_rollout(number))
    for _ in samplers:
        assert holders.round()
    assert holders.flows[0].algorithm.updates == 2
    assert [one.lag for one in holders.flows[0].experiences()] == [0, 1]
    assert counts(holders)["used"] == 2


def test_a_restarted_learner_keeps_its_counts_and_rejects_old_rollouts(
    tmp_path: Path,
) -> None:
    holders, (sampler, _) = start(tmp_path, {"ppo": PPO_AT_LEARNER})
    sampler.push_rollout(make_rollout(0))
    assert holders.round(timeout=5)
    flow = holders.flows[0]
    kept, state = flow.get_state(), flow.algorithm.get_state()

    later, (same, _) = start(tmp_path, {"ppo": PPO_AT_LEARNER})
    later.flows[0].set_state(kept)
    later.flows[0].algorithm.set_state(state)
    assert counts(later) == counts(holders)
    assert torch.equal(later.parameters, holders.parameters)
    same.answers[0].append(sampler.last[0] | {"place": ("life before", 1, 0)})
    same.incarnation = "b"
    same.push_rollout(make_rollout(1))
    assert same.last[0]["used"] is False
    assert counts(later) == {"pushed": 2, "used": 1, "dropped": 1, "queued": 0, "stale": 1}


def test_what_is_not_an_unroll_of_this_job_is_refused_and_not_counted(tmp_path: Path) -> None:
    holders, (sampler, _) = start(tmp_path, {"ppo": PPO_AT_LEARNER})
    longer = make_rollout(0) | {"reward": torch.zeros(T + 1, B)}
    with pytest.raises(ValueError, match=r"the field unroll\.reward must be"):
        sampler.push_rollout(longer)
    assert counts(holders)["pushed"] == 0
