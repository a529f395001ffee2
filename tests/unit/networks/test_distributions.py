"""Action distributions against torch.distributions, their own samples, and the action spaces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rltraining_trainer.networks import Categorical, DiagonalGaussian, SquashedGaussian
from soak import SOAK
from torch import distributions as reference

N = 200_000
"""Number of draws for statistics. A mean practically always errs by less than 5/√N standard deviations."""


def box(low: object, high: object, shape: tuple[int, ...], dtype: type = np.float32) -> spaces.Box:
    return spaces.Box(
        np.broadcast_to(low, shape).astype(dtype), np.broadcast_to(high, shape).astype(dtype), shape, dtype
    )


def test_categorical_probabilities_and_entropies_are_torchs() -> None:
    torch.manual_seed(0)
    ours, logits = Categorical(spaces.Discrete(5)), 3 * torch.randn(7, 3, 5)
    theirs = reference.Categorical(logits=logits, validate_args=False)
    action = torch.randint(0, 5, (7, 3))

    log_prob, entropy = ours.log_prob_and_entropy(logits, action)

    assert torch.allclose(log_prob, theirs.log_prob(action), atol=1e-6)
    assert torch.allclose(ours.log_prob(logits, action), theirs.log_prob(action), atol=1e-6)
    assert torch.allclose(entropy, theirs.entropy(), atol=1e-6)
    assert torch.equal(ours.mode(logits), logits.argmax(-1))


def test_gaussian_probabilities_and_entropies_are_torchs() -> None:
    torch.manual_seed(0)
    ours, parameters = DiagonalGaussian(box(-1, 1, (3,))), torch.randn(7, 2, 6)
    mean, log_std = parameters.chunk(2, -1)
    theirs = reference.Independent(
        reference.Normal(mean, log_std.exp(), validate_args=False), 1, validate_args=False
    )
    action = torch.randn(7, 2, 3)

    log_prob, entropy = ours.log_prob_and_entropy(parameters, action)

    assert torch.allclose(log_prob, theirs.log_prob(action), atol=1e-4)
    assert torch.equal(ours.log_prob(parameters, action), log_prob)
    assert torch.allclose(entropy, theirs.entropy(), atol=1e-5)
    assert torch.equal(ours.mode(parameters), mean)


def test_squashed_gaussian_probabilities_are_torchs_and_entropies_those_of_draws() -> None:
    torch.manual_seed(0)
    ours, parameters = SquashedGaussian(box(-1, 1, (2,))), torch.randn(5, 4)
    mean, log_std = parameters.chunk(2, -1)
    log_std = (log_std / 3).clamp(max=0.4)
    parameters = torch.cat((mean, log_std), -1)
    theirs = reference.Independent(
        reference.TransformedDistribution(
            reference.Normal(mean.double(), log_std.double().exp()), reference.TanhTransform(cache_size=1)
        ),
        1,
    )
    draw = ours.sample(parameters, ours.noise(5))
    log_prob, entropy = ours.log_prob_and_entropy(parameters, draw)

    squashed = ours.environment_action(draw)
    assert torch.equal(squashed, draw.tanh())
    expected = theirs.log_prob(draw.double().tanh())
    assert torch.allclose(log_prob.double(), expected, rtol=1e-5, atol=1e-5)
    many = ours.sample(parameters.expand(N, 5, 4), ours.noise(N, 5))
    surprise = -ours.log_prob(parameters, many)
    assert torch.allclose(entropy, surprise.mean(0), atol=0.02)
    assert torch.isfinite(ours.log_prob(parameters, torch.full((5, 2), 50.0))).all(), "where tanh rounds to 1"


def test_a_squashed_draw_is_within_the_bounds_of_the_space() -> None:
    ours = SquashedGaussian(box([0, -3], [10, 3], (2,)))
    ends = torch.tensor([[-50.0, -50.0], [0.0, 0.0], [50.0, 50.0]])
    assert ours.to_environment(ends).tolist() == [[0, -3], [5, 0], [10, 3]]


def test_a_log_standard_deviation_is_kept_within_its_bounds() -> None:
    space = box(-1, 1, (3,))
    wild = torch.cat((torch.zeros(3), torch.tensor([-9.0, 0.5, 9.0])))
    tame = torch.cat((torch.zeros(3), torch.tensor([-2.0, 0.5, 1.0])))
    ours, plain, action = DiagonalGaussian(space, (-2.0, 1.0)), DiagonalGaussian(space), torch.ones(3)
    for found, expected in zip(
        ours.log_prob_and_entropy(wild, action), plain.log_prob_and_entropy(tame, action), strict=True
    ):
        assert torch.equal(found, expected)
    assert torch.equal(ours.sample(wild, action), plain.sample(tame, action))


def test_a_log_standard_deviation_beyond_its_bounds_can_return() -> None:
    """A descent moves against the sign of the gradient."""
    distribution = DiagonalGaussian(box(-1, 1, (3,)), (-2.0, 1.0))
    log_std = torch.tensor([-9.0, 0.5, 9.0], requires_grad=True)
    _, entropy = distribution.log_prob_and_entropy(torch.cat((torch.zeros(3), log_std)), torch.zeros(3))

    (rising,) = torch.autograd.grad(-entropy, log_std, retain_graph=True)
    (falling,) = torch.autograd.grad(entropy, log_std)

    assert rising.tolist() == [-1.0, -1.0, 0.0]
    assert falling.tolist() == [0.0, 1.0, 1.0]


def test_categorical_draws_as_often_as_it_says() -> None:
    torch.manual_seed(0)
    ours, logits = Categorical(spaces.Discrete(4)), torch.tensor([0.0, 2.0, -1.0, 1.0])

    action = ours.sample(logits.expand(N, 4), ours.noise(N))

    frequency = torch.bincount(action, minlength=4) / N
    assert torch.allclose(frequency, logits.softmax(-1), atol=5 / N**0.5)
    assert action.dtype == torch.int64


def test_gaussian_draws_have_its_mean_and_deviation() -> None:
    torch.manual_seed(0)
    ours = DiagonalGaussian(box(-1, 1, (2,)))
    parameters = torch.tensor([0.5, -2.0, -1.0, 0.3])

    action = ours.sample(parameters.expand(N, 4), ours.noise(N))

    deviation = parameters[2:].exp()
    assert torch.allclose(action.mean(0), parameters[:2], atol=float(5 * deviation.max() / N**0.5))
    assert torch.allclose(action.std(0), deviation, rtol=0.02)


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3), spaces.Discrete(3, start=5), spaces.Discrete(2, start=-1)]
)
def test_discrete_actions_are_counted_from_the_spaces_start(space: spaces.Discrete) -> None:
    ours = Categorical(space)
    action = torch.arange(ours.parameter_size)

    taken = ours.to_environment(action)

    assert taken.tolist() == list(range(int(space.start), int(space.start + space.n)))
    assert all(space.contains(a) for a in taken)
    assert torch.equal(ours.environment_action(action), torch.from_numpy(taken))


BOXES = [
    box(-2, 2, (1,)),
    box(-1, 3, (2, 3)),
    box([0, -5], [np.inf, 5], (2,)),
    box(-np.inf, np.inf, (2,)),
    box(0.1, 0.3, (2,), np.float64),
    box(-0.7, 0.1, (1,), np.float16),
    box(1, 1, (1,)),
    box(0, 1, ()),
]


@pytest.mark.parametrize("space", BOXES, ids=str)
@settings(max_examples=20 * SOAK)
@given(data=st.data())
def test_every_draw_becomes_an_action_of_the_space(space: spaces.Box, data: st.DataObject) -> None:
    ours = DiagonalGaussian(space)
    shape = (4, *ours.action_shape)
    draws = data.draw(hnp.arrays(np.float32, shape, elements=st.floats(-100, 100, width=32)))

    actions = ours.to_environment(torch.from_numpy(draws))

    assert actions.shape == (4, *space.shape)
    assert actions.dtype == space.dtype
    for action in actions:
        assert space.contains(np.asarray(action)), action


def test_minus_1_to_1_is_the_whole_of_a_bounded_action() -> None:
    ours = DiagonalGaussian(box([0, -3], [10, 3], (2,)))
    draws = torch.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [9.0, 0.5]])

    assert ours.to_environment(draws).tolist() == [[0, -3], [5, 0], [10, 3], [10, 1.5]]


def test_an_action_without_bounds_is_as_it_was_drawn() -> None:
    ours = DiagonalGaussian(box([0, -np.inf], np.inf, (2,)))

    assert ours.to_environment(torch.tensor([[-7.0, -7.0], [7.0, 7.0]])).tolist() == [[0, -7], [7, 7]]
