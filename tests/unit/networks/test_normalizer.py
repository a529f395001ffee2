"""The running statistics in a network, and the separate network for the value."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.environment import Normalize
from rltraining_api.network import Lstm, Mlp, Network
from rltraining_trainer.dataflow import flatten_parameters
from rltraining_trainer.dataflow.moments import moments_of
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks import build_actor_critic, build_q_network
from rltraining_trainer.networks.normalizer import Normalizer

BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32)
MLP = Network(mlp=Mlp(hidden_sizes=(8,)))
BOTH = Normalize(observations=True, rewards=True)


def parts(seed: int = 0) -> list[torch.Tensor]:
    """Observations far from 0 with components of different scales, in batches of different sizes."""
    generator = torch.Generator().manual_seed(seed)
    scale, shift = torch.tensor([1e-3, 1.0, 100.0]), torch.tensor([5.0, -3e3, 0.0])
    return [torch.randn(size, 3, generator=generator) * scale + shift for size in (7, 1, 40, 200)]


def test_merged_moments_are_those_of_all_that_was_seen() -> None:
    normalizer, seen = Normalizer((3,), rewards=False), parts()
    for part in seen:
        normalizer.merge([moments_of(part)])

    everything = torch.cat(seen).double()
    assert normalizer.count.item() == len(everything)
    assert torch.allclose(normalizer.mean.double(), everything.mean(0), rtol=1e-5)
    assert torch.allclose(normalizer.variance.double(), everything.var(0, correction=0), rtol=1e-4)


def test_learners_that_merge_together_have_what_one_would_have() -> None:
    """Each learner has a part of the moments. Their sum makes the same statistics in each learner."""
    seen = parts()
    one = Normalizer((3,), rewards=False)
    one.merge([moments_of(part) for part in seen])
    sums: list[torch.Tensor] = []
    for learner in range(2):
        Normalizer((3,), rewards=False).merge(
            [moments_of(part) for part in seen[learner::2]],
            lambda part, count: sums.append(part.clone()) or 0.0,
        )
    either = Normalizer((3,), rewards=False)
    either.merge([], lambda part, count: part.copy_(sums[0] + sums[1]) is None)

    assert torch.allclose(either.mean, one.mean, rtol=1e-6)
    assert torch.allclose(either.variance, one.variance, rtol=1e-4)


def test_observations_are_normalised_and_clipped() -> None:
    normalizer, seen = Normalizer((3,), rewards=False), torch.cat(parts())
    normalizer.merge([moments_of(seen)])
    normalised = normalizer(seen)

    assert torch.allclose(normalised.mean(0), torch.zeros(3), atol=1e-3)
    assert torch.allclose(normalised.std(0, correction=0), torch.ones(3), atol=1e-2)
    assert normalizer(torch.full((1, 3), 1e9)).tolist() == [[10.0, 10.0, 10.0]]


def test_the_factor_of_rewards_is_of_all_returns_up_to_the_newest() -> None:
    generator = torch.Generator().manual_seed(0)
    old, new = (torch.randn(size, 4, generator=generator) * 300.0 - 700.0 for size in (50, 30))
    normalizer = Normalizer((3,), rewards=True)
    assert normalizer.reward_scale(moments_of(old)) == pytest.approx(1.0 / old[:, 3].std(correction=0).item())

    normalizer.merge([moments_of(old)])
    both = torch.cat((old, new))[:, 3]
    assert normalizer.reward_scale(moments_of(new)) == pytest.approx(1.0 / both.std(correction=0).item())


@pytest.mark.parametrize("rare", [1e19, 1e25, 3.4e38, -3.4e38])
@pytest.mark.parametrize("count", [1, 1000])
def test_statistics_of_finite_numbers_are_finite(rare: float, count: int) -> None:
    normalizer = Normalizer((3,), rewards=True)
    usual = torch.cat((torch.cat(parts()), torch.ones(248, 1)), 1)
    for _ in range(3):
        normalizer.merge([moments_of(usual), moments_of(torch.full((count, 4), rare))])

    assert all(parameter.isfinite().all() for parameter in normalizer.parameters())
    assert normalizer.reward_scale(moments_of(usual)) > 0
    extremes = torch.tensor([[-3.4e38, 0.0, 3.4e38]])
    assert normalizer(extremes).isfinite().all()
    # Sums of rewards may exceed float32.
    normalizer.merge([moments_of(torch.full((1, 4), 1e100, dtype=torch.float64))])
    assert normalizer.variance.tolist() == [3.4028234663852886e38] * 4
    assert all(parameter.isfinite().all() for parameter in normalizer.parameters())


def test_nothing_that_was_merged_changes_nothing() -> None:
    normalizer = Normalizer((3,), rewards=True)
    normalizer.merge([])

    assert torch.equal(normalizer(torch.ones(1, 3)), torch.ones(1, 3))


def test_statistics_are_parameters_that_no_gradient_reaches() -> None:
    """Statistics are therefore sent, stored and exported like all other parameters."""
    network, _ = build_actor_critic(MLP, BOX, spaces.Discrete(2), normalize=BOTH)
    flat = flatten_parameters(network)
    policies, values = network.unroll(torch.ones(4, 2, 3), (), torch.zeros(4, 2, dtype=torch.bool))
    (policies.sum() + values.sum()).backward()

    size = sum(parameter.numel() for parameter in network.normalizer.parameters())
    assert size == 1 + 2 * 4
    assert not flat.grad[:size].any(), "they come first"
    assert flat.grad[size:].any()
    network.normalizer.merge([moments_of(torch.cat((torch.cat(parts()), torch.ones(248, 1)), 1))])
    assert flat[1:4].tolist() == network.normalizer.mean[:3].tolist()


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (MLP, True),
        (MLP.model_copy(update={"value_network": "Shared"}), False),
        (Network(mlp=Mlp(), lstm=Lstm()), False),
    ],
)
def test_vectors_have_a_network_for_the_value_unless_it_is_shared(network: Network, expected: bool) -> None:
    actor_critic, _ = build_actor_critic(network, BOX, spaces.Discrete(2))
    flat = flatten_parameters(actor_critic)
    unrolled = actor_critic.unroll(
        torch.ones(2, 1, 3), actor_critic.initial_state(1), torch.zeros(2, 1).bool()
    )
    unrolled[1].sum().backward()
    torso = [parameter.grad for parameter in actor_critic.torso.parameters()]

    assert (not any(gradient.any() for gradient in torso)) is expected, (
        "the value trains the policy's torso, or not"
    )
    assert len(actor_critic.clip_sizes) == 1 + expected
    assert sum(actor_critic.clip_sizes) == flat.numel()
    if expected:
        assert not flat.grad[: actor_critic.clip_sizes[0]].any(), "the value's parameters come last"
        assert actor_critic.value(torch.ones(1, 3), ()) == unrolled[1][0]


def test_what_cannot_be_is_refused() -> None:
    separate = Network(mlp=Mlp(), lstm=Lstm(), value_network="Separate")
    with pytest.raises(BadConfiguration, match=r"spec\.network\.valueNetwork: with an LSTM, .* set Shared"):
        build_actor_critic(separate, BOX, spaces.Discrete(2))
    with pytest.raises(BadConfiguration, match=r"normalize\.rewards: dqnApex .* set rewardScale"):
        build_q_network(MLP, BOX, spaces.Discrete(2), dueling=True, normalize=BOTH)
