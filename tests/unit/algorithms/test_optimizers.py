"""Optimizers on one flat vector; torch.optim is the oracle, in its functional form, which imports no compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rltraining_api.algorithms import Adam, Optimizer, RmsProp, Sgd
from rltraining_trainer.algorithms.optimizers import clip_by_norm, make_optimizer
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop
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
    "rmsprop": (
        Optimizer(rmsprop=RmsProp(alpha=0.9, epsilon=1e-2)),
        rmsprop,
        (zeros(), [], [], count()),
        {"alpha": 0.9, "eps": 1e-2, "weight_decay": 0.0, "momentum": 0.0, "centered": False},
    ),
    "rmsprop, momentum, centered": (
        Optimizer(rmsprop=RmsProp(alpha=0.95, epsilon=1e-2, momentum=0.7, centered=True)),
        rmsprop,
        (zeros(), zeros(), zeros(), count()),
        {"alpha": 0.95, "eps": 1e-2, "weight_decay": 0.0, "momentum": 0.7, "centered": True},
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
