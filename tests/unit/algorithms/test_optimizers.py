"""Optimizers on one flat vector.

The oracle of Adam and SGD is torch.optim, in its functional form, which imports no compiler. The
oracle of RMSProp is TensorFlow's definition, in numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from rltraining_api.algorithms import Adam, Optimizer, RmsProp, Sgd
from rltraining_trainer.algorithms.optimizers import clip_by_norm, make_optimizer
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

SIZE = 50
ADAM = {"amsgrad": False, "weight_decay": 0.0, "maximize": False}
SGD = {"weight_decay": 0.0, "dampening": 0.0, "nesterov": False, "maximize": False}


def zeros() -> list[Tensor]:
    return [torch.zeros(SIZE)]


def count() -> list[Tensor]:
    return [torch.tensor(0.0)]


CASES: dict[str, tuple[Optimizer, Callable[..., None], tuple[list[Any], ...], dict[str, Any]]] = {
    "adam": (
        Optimizer(adam=Adam(beta1=0.5, beta2=0.9, epsilon=1e-3)),
        adam,
        (zeros(), zeros(), [], count()),
        {"beta1": 0.5, "beta2": 0.9, "eps": 1e-3, **ADAM},
    ),
    "sgd": (Optimizer(sgd=Sgd()), sgd, ([None],), {"momentum": 0.0, **SGD}),
    "sgd, momentum": (Optimizer(sgd=Sgd(momentum=0.9)), sgd, ([None],), {"momentum": 0.9, **SGD}),
}
"""Settings, torch's function, its state and its settings."""


@pytest.mark.parametrize(("settings", "torchs", "state", "keywords"), CASES.values(), ids=CASES.keys())
def test_steps_are_those_of_torch(
    settings: Optimizer, torchs: Callable[..., None], state: tuple[list[Any], ...], keywords: dict[str, Any]
) -> None:
    ours = torch.linspace(-1, 1, SIZE)
    theirs, scales = ours.clone(), torch.logspace(-3, 1, SIZE)
    optimizer = make_optimizer(settings, SIZE)
    for step in range(20):
        gradient, learning_rate = scales * torch.randn(SIZE), 0.01 / (1 + step)
        torchs([theirs], [gradient.clone()], *state, foreach=False, lr=learning_rate, **keywords)
        optimizer.step(ours, gradient, learning_rate)

        assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6), f"step {step}"


@pytest.mark.parametrize("centered", [False, True], ids=["plain", "centered"])
@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("epsilon", [0.1, 1.5e-7])
def test_rmsprop_is_tensorflows(epsilon: float, momentum: float, centered: bool) -> None:
    """ApplyRMSProp and ApplyCenteredRMSProp of TensorFlow 1, as their documentation defines them, with its initial values."""
    settings = RmsProp(alpha=0.95, epsilon=epsilon, momentum=momentum, centered=centered)
    optimizer = make_optimizer(Optimizer(rmsprop=settings), SIZE)
    ours = torch.linspace(-1, 1, SIZE)
    theirs, scales = ours.double().numpy(), np.logspace(-3, 1, SIZE)
    mean_square, mean, moment = np.ones(SIZE), np.zeros(SIZE), np.zeros(SIZE)
    for step in range(100):
        gradient, rate = torch.from_numpy(scales * np.random.standard_normal(SIZE)).float(), 0.01 / (1 + step)
        optimizer.step(ours, gradient, rate)

        g = gradient.double().numpy()
        mean_square += 0.05 * (g**2 - mean_square)
        mean += centered * 0.05 * (g - mean)
        moment = momentum * moment + rate * g / np.sqrt(mean_square - mean**2 + epsilon)
        theirs = theirs - moment

        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-5, err_msg=f"step {step}")


def test_rmsprop_settles_where_the_gradient_vanishes() -> None:
    """With epsilon outside the root, Ape-X's default would not settle.

    It would continue to make steps of the size of the learning rate around an optimum.
    """
    rmsprop = RmsProp(alpha=0.95, epsilon=1.5e-7, centered=True)
    optimizer, parameters = (
        make_optimizer(Optimizer(rmsprop=rmsprop), SIZE),
        torch.linspace(-0.01, 0.01, SIZE),
    )
    for _ in range(2000):
        optimizer.step(parameters, parameters.clone(), 6.25e-5)

    assert parameters.abs().max() < 1e-6


def test_centered_rmsprop_stays_finite_with_a_gradient_that_hardly_varies() -> None:
    optimizer = make_optimizer(Optimizer(rmsprop=RmsProp(alpha=0.5, centered=True)), SIZE)
    parameters, gradient = torch.zeros(SIZE), torch.linspace(0.1, 3.0, SIZE)
    for _ in range(200):
        optimizer.step(parameters, gradient, 1e-3)

    assert torch.isfinite(parameters).all(), "the variance is never negative"


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 5.0), (10.0, 5.0), (5.0, 5.0), (1.0, 1.0), (1e-3, 1e-3)]
)
def test_clip_by_norm(limit: float | None, expected: float) -> None:
    gradient = torch.tensor([3.0, 0.0, -4.0])

    norm = clip_by_norm(gradient, limit)

    assert norm.item() == 5.0, "the norm before it was clipped"
    assert gradient.norm().item() == pytest.approx(expected, rel=1e-5)
    assert torch.allclose(gradient / gradient.norm(), torch.tensor([0.6, 0.0, -0.8])), "the direction stays"


def test_a_gradient_of_zeros_stays_zero_when_it_is_clipped() -> None:
    gradient = torch.zeros(3)
    assert clip_by_norm(gradient, 1.0).item() == 0.0
    assert not gradient.any()
