"""Actions of several factors: the sum of the factors' own distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_trainer.networks.distributions import Categorical, DiagonalGaussian
from rltraining_trainer.networks.factored import Factored
from rltraining_trainer.networks.unpack import MASKED
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Normal, kl_divergence

BOX = spaces.Box(-2, 4, (2,), np.float32)
MIXED = spaces.Dict(
    {
        "grip": spaces.Discrete(3, start=5),
        "move": BOX,
        "switches": spaces.MultiBinary(2),
        "tools": spaces.Tuple([spaces.MultiDiscrete([2, 4], start=[0, 1])]),
    }
)
CHOICES = (3, 2, 2, 2, 4)


def parameters_of(distribution: Factored, *batch: int) -> torch.Tensor:
    return torch.randn(*batch, distribution.parameter_size, generator=torch.Generator().manual_seed(1))


def test_log_prob_and_entropy_are_the_sums_over_the_factors() -> None:
    distribution = Factored(MIXED)
    parameters = parameters_of(distribution, 6)
    assert (distribution.parameter_size, distribution.gaussians) == (13 + 4, 2)
    action = distribution.sample(parameters, distribution.noise(6))
    assert action.shape == (6, *distribution.action_shape)

    expected_log_prob, expected_entropy = torch.zeros(6), torch.zeros(6)
    for factor, logits in enumerate(parameters[:, :13].split(CHOICES, 1)):
        one = TorchCategorical(logits=logits)
        expected_log_prob += one.log_prob(action[:, factor])
        expected_entropy += one.entropy()
    normal = Normal(parameters[:, 13:15], parameters[:, 15:].exp())
    expected_log_prob += normal.log_prob(action[:, 5:]).sum(1)
    expected_entropy += normal.entropy().sum(1)
    log_prob, entropy = distribution.log_prob_and_entropy(parameters, action)
    torch.testing.assert_close(log_prob, expected_log_prob)
    torch.testing.assert_close(distribution.log_prob(parameters, action), expected_log_prob)
    torch.testing.assert_close(entropy, expected_entropy)


def test_draws_have_the_factors_probabilities() -> None:
    distribution = Factored(spaces.MultiDiscrete([3, 5]))
    parameters = parameters_of(distribution)
    torch.manual_seed(0)
    count = 20_000
    drawn = distribution.sample(parameters.expand(count, -1), distribution.noise(count))
    assert drawn.dtype == torch.int64
    for factor, logits in enumerate(parameters.split((3, 5))):
        found = torch.bincount(drawn[:, factor], minlength=len(logits)) / count
        expected = logits.softmax(0)
        assert kl_divergence(TorchCategorical(found), TorchCategorical(expected)) < 1e-3
    assert distribution.mode(parameters).tolist() == [
        part.argmax().item() for part in parameters.split((3, 5))
    ]


@pytest.mark.parametrize(
    "space",
    [
        MIXED,
        spaces.MultiDiscrete([3, 2]),
        spaces.MultiDiscrete([[3, 2], [2, 2]], dtype=np.int32),
        spaces.MultiBinary([2, 3]),
        spaces.Tuple([spaces.Discrete(2), BOX]),
        spaces.Tuple([BOX]),
    ],
    ids=str,
)
def test_actions_come_in_the_structure_of_their_space(space: spaces.Space) -> None:
    distribution = Factored(space)
    parameters = 3 * parameters_of(distribution, 5)
    actions = distribution.to_environment(distribution.sample(parameters, distribution.noise(5)))
    for action in spaces_iterate(space, actions):
        assert space.contains(action), action
    parts = distribution.environment_parts(distribution.mode(parameters))
    assert len(parts) == len(distribution.names) == len(set(distribution.names))


def spaces_iterate(space: spaces.Space, actions: Any) -> Any:
    from gymnasium.vector.utils import batch_space, iterate

    return iterate(batch_space(space, 5), actions)


@pytest.mark.parametrize(("single", "space"), [(Categorical, spaces.Discrete(4)), (DiagonalGaussian, BOX)])
def test_one_factor_is_the_distribution_of_that_factor(single: type, space: spaces.Space) -> None:
    alone, factored = single(space), Factored(spaces.Tuple([space]))
    parameters = parameters_of(factored, 3)
    action = factored.sample(parameters, factored.noise(3))
    torch.testing.assert_close(
        factored.log_prob_and_entropy(parameters, action),
        alone.log_prob_and_entropy(parameters, action.squeeze(-1) if single is Categorical else action),
    )


def test_masked_choices_have_probability_zero_and_finite_gradients() -> None:
    distribution = Factored(spaces.MultiDiscrete([3, 2]))
    parameters = parameters_of(distribution, 4000)
    invalid = torch.tensor([True, False, True, False, True])
    leaf = parameters.clone().requires_grad_()
    masked = leaf.masked_fill(invalid, MASKED)
    action = distribution.sample(masked, distribution.noise(4000))
    assert (action == torch.tensor([1, 0])).all()
    log_prob, entropy = distribution.log_prob_and_entropy(masked, action)
    assert (log_prob == 0).all()
    assert (entropy == 0).all(), "nothing is left to choose"
    (log_prob + entropy).sum().backward()
    assert leaf.grad is not None
    assert torch.isfinite(leaf.grad).all()
    assert (leaf.grad[:, invalid] == 0).all()
