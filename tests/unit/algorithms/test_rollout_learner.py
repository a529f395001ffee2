"""The learner that computes all gradients: minibatches, reductions, the limit on the policy's change, and resuming."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.algorithms import A2c, Optimizer, Ppo, Sgd
from rltraining_api.environment import Normalize
from rltraining_api.network import Mlp, Network
from rltraining_trainer.dataflow.moments import moments_of
from rltraining_trainer.networks import build_actor_critic
from rollouts import DISCRETE, T, make_network, make_unroll, rollout_learner
from through_a_file import restore

SGD = Optimizer(sgd=Sgd())
UNROLLS = [make_unroll(*make_network(), seed=seed) for seed in range(3)]


def test_each_minibatch_of_all_samplers_steps_is_an_update() -> None:
    learner = rollout_learner(Ppo(epochs=3, minibatches=4))
    terms = learner.step(UNROLLS)
    assert learner.updates == 12
    assert learner.environment_steps == sum(int(unroll["valid"].sum()) for unroll in UNROLLS)
    assert terms["kl"] > 0


@pytest.mark.parametrize(("target_kl", "updates"), [(None, 4), (1e9, 4), (1e-9, 1)])
def test_an_update_that_moves_the_policy_too_far_is_the_last_of_its_rollouts(
    target_kl: float | None, updates: int
) -> None:
    learner = rollout_learner(Ppo(epochs=2, minibatches=2, target_kl=target_kl))
    learner.step(UNROLLS)
    assert learner.updates == updates


def test_a_learner_that_has_to_end_makes_no_further_update() -> None:
    """Its counters include the whole rollout, so that samplers do not repeat the steps."""
    learner, updates = rollout_learner(Ppo(epochs=2, minibatches=4)), []
    terms = learner.step(UNROLLS, leaving=lambda: learner.updates == 3)
    updates.append(learner.updates)
    learner.step(UNROLLS, leaving=lambda: True)
    updates.append(learner.updates)
    assert updates == [3, 4]
    assert learner.environment_steps == 2 * sum(int(unroll["valid"].sum()) for unroll in UNROLLS)
    assert terms["kl"] > 0


@pytest.mark.parametrize(
    ("loss", "reduction", "share"),
    [("Mean", "Mean", 1), ("Mean", "Sum", 3), ("Sum", "Mean", 3 * T * 4 / 3), ("Sum", "Sum", 3 * T * 4)],
)
def test_reductions_are_those_of_one_gradient_of_each_sampler(
    loss: Any, reduction: Any, share: float
) -> None:
    """``share`` is the factor relative to the mean over all steps."""
    unrolls = copy.deepcopy(UNROLLS)
    for unroll in unrolls:
        unroll["valid"][:] = True
    rate, changes = 1e-3, []
    for kind, how in (("Mean", "Mean"), (loss, reduction)):
        settings: Any = {"loss_reduction": kind, "aggregate": {"reduction": how}, "gradient_clip": None}
        learner = rollout_learner(A2c(**settings, optimizer=SGD, learning_rate=rate))
        before = learner.parameters.clone()
        learner.step(unrolls)
        changes.append((learner.parameters - before) / rate)
    torch.testing.assert_close(changes[1], share * changes[0], rtol=1e-2, atol=1e-2)


def test_rollouts_without_a_step_change_nothing() -> None:
    (unroll,) = copy.deepcopy(UNROLLS[:1])
    unroll["valid"][:] = False
    for settings in (A2c(), Ppo()):
        learner = rollout_learner(settings)
        before = learner.parameters.clone()
        assert learner.step([unroll]) == {}
        assert (learner.updates, learner.environment_steps) == (0, 0)
        assert torch.equal(learner.parameters, before)


def test_a_resumed_learner_makes_the_same_updates_to_the_bit() -> None:
    """The order of minibatches continues too, since checkpoints contain the state of its generator."""
    learner = rollout_learner(Ppo(minibatches=3))
    learner.step(UNROLLS[:1])
    random, found = torch.get_rng_state(), []
    resumed, reordered = rollout_learner(Ppo(minibatches=3)), rollout_learner(Ppo(minibatches=3))
    restore(resumed, learner)
    restore(reordered, learner)
    for each in (learner, resumed, reordered):
        if each is not reordered:
            torch.set_rng_state(random)
        each.step(UNROLLS)
        found.append(each.parameters)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2]), "the order matters"


def test_statistics_of_observations_change_after_the_updates_from_them() -> None:
    """Minibatches use the policy that acted: the ratio of the first is 1."""
    spec, normalize = Network(mlp=Mlp(hidden_sizes=(5,))), Normalize(observations=True)
    box = spaces.Box(-1, 1, (3,), np.float32)
    network, distribution = build_actor_critic(spec, box, DISCRETE, normalize=normalize)
    learner = rollout_learner(Ppo(epochs=1, minibatches=1), (network, distribution))
    unrolls = [make_unroll(network, distribution, seed, drift=0.0) for seed in range(2)]
    for unroll in unrolls:
        unroll["moments"] = moments_of(unroll["observation"][:-1].flatten(0, 1)).unsqueeze(0)
    assert learner.step(unrolls)["kl"] == pytest.approx(0.0, abs=1e-6)
    assert network.normalizer is not None
    seen = torch.cat([unroll["observation"][:-1].flatten(0, 1) for unroll in unrolls])
    torch.testing.assert_close(network.normalizer.mean.detach(), seen.mean(0))
