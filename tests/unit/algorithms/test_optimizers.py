"""Optimizers on one flat vector; torch.optim is the oracle, in its functional form, which imports no compiler."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rltraining_api.algorithms import Adam as AdamSettings
from rltraining_api.algorithms import Optimizer as Settings
from rltraining_api.algorithms import RmsProp as RmsPropSettings
from rltraining_api.algorithms import Sgd as SgdSettings
from rltraining_trainer.algorithms.optimizers import clip_by_norm, make_optimizer
from rltraining_trainer.checkpoint import snapshot
from torch import Tensor
from torch.optim.adam import adam as adam_step
from torch.optim.rmsprop import rmsprop as rmsprop_step
from torch.optim.sgd import sgd as sgd_step

SIZE, STEPS = 50, 20


def adam(**settings: float) -> Settings:
    return Settings(adam=AdamSettings(**settings))


def rmsprop(**settings: float) -> Settings:
    return Settings(rmsprop=RmsPropSettings(**settings))


def sgd(**settings: float) -> Settings:
    return Settings(sgd=SgdSettings(**settings))


Oracle = Callable[[Tensor, Tensor, float], None]
"""(parameters, gradient, learning rate): a step of torch's, in place."""


def torch_adam(beta1: float, beta2: float, eps: float) -> Oracle:
    means, squares, steps = torch.zeros(SIZE), torch.zeros(SIZE), torch.tensor(0.0)

    def step(parameters: Tensor, gradient: Tensor, lr: float) -> None:
        adam_step(
            [parameters],
            [gradient],
            [means],
            [squares],
            [],
            [steps],
            foreach=False,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=lr,
            weight_decay=0.0,
            eps=eps,
            maximize=False,
        )

    return step


def torch_rmsprop(alpha: float, eps: float, *, momentum: float = 0.0, centered: bool = False) -> Oracle:
    squares, means, buffers, steps = *torch.zeros(3, SIZE), torch.tensor(0.0)

    def step(parameters: Tensor, gradient: Tensor, lr: float) -> None:
        rmsprop_step(
            [parameters],
            [gradient],
            [squares],
            [means] if centered else [],
            [buffers] if momentum else [],
            [steps],
            foreach=False,
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=0.0,
            momentum=momentum,
            centered=centered,
        )

    return step


def torch_sgd(momentum: float = 0.0) -> Oracle:
    buffers: list[Tensor | None] = [None]

    def step(parameters: Tensor, gradient: Tensor, lr: float) -> None:
        sgd_step(
            [parameters],
            [gradient],
            buffers,
            foreach=False,
            weight_decay=0.0,
            momentum=momentum,
            lr=lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )

    return step


CASES: dict[str, tuple[Settings, Callable[[], Oracle]]] = {
    "adam": (adam(), lambda: torch_adam(0.9, 0.999, 1e-8)),
    "adam, other betas": (adam(beta1=0.5, beta2=0.9, epsilon=1e-3), lambda: torch_adam(0.5, 0.9, 1e-3)),
    "rmsprop": (rmsprop(), lambda: torch_rmsprop(0.99, 0.01)),
    "rmsprop, momentum": (
        rmsprop(alpha=0.9, epsilon=1e-5, momentum=0.7),
        lambda: torch_rmsprop(0.9, 1e-5, momentum=0.7),
    ),
    "rmsprop, centered": (
        rmsprop(alpha=0.95, epsilon=1e-3, centered=True),
        lambda: torch_rmsprop(0.95, 1e-3, centered=True),
    ),
    "rmsprop, both": (
        rmsprop(alpha=0.95, epsilon=1e-2, momentum=0.9, centered=True),
        lambda: torch_rmsprop(0.95, 1e-2, momentum=0.9, centered=True),
    ),
    "sgd": (sgd(), torch_sgd),
    "sgd, momentum": (sgd(momentum=0.9), lambda: torch_sgd(0.9)),
}


def gradients(seed: int = 0) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    scales = torch.logspace(-3, 1, SIZE)
    return [scales * torch.randn(SIZE, generator=random) for _ in range(STEPS)]


def start() -> Tensor:
    return torch.linspace(-1, 1, SIZE)


@pytest.mark.parametrize(("settings", "oracle"), CASES.values(), ids=CASES.keys())
def test_it_steps_as_torch_does(settings: Settings, oracle: Callable[[], Oracle]) -> None:
    ours, theirs = start(), start()
    optimizer, reference = make_optimizer(settings, SIZE), oracle()
    for step, gradient in enumerate(gradients()):
        learning_rate = 0.01 / (1 + step)  # a schedule
        optimizer.step(ours, gradient.clone(), learning_rate)
        reference(theirs, gradient.clone(), learning_rate)

        assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6), f"step {step}"


@pytest.mark.parametrize("settings", [settings for settings, _ in CASES.values()], ids=CASES.keys())
def test_its_state_goes_on_exactly(settings: Settings) -> None:
    straight, resumed = start(), start()
    first, second = make_optimizer(settings, SIZE), make_optimizer(settings, SIZE)
    half = STEPS // 2
    for gradient in gradients()[:half]:
        first.step(straight, gradient, 0.01)
    state = snapshot(first.get_state())
    resumed.copy_(straight)
    second.set_state(state)
    for gradient in gradients()[half:]:
        first.step(straight, gradient, 0.01)
        second.step(resumed, gradient, 0.01)

    assert torch.equal(straight, resumed)
    assert state.keys() == second.get_state().keys()


def test_the_state_of_another_optimizer_or_size_is_refused() -> None:
    states = [make_optimizer(s, n).get_state() for s, n in ((adam(), 3), (rmsprop(), 4), (rmsprop(), 3))]
    optimizer = make_optimizer(rmsprop(momentum=0.5), 4)
    for state in states:
        with pytest.raises((KeyError, RuntimeError)):
            optimizer.set_state(state)


def test_centered_rmsprop_survives_a_gradient_that_hardly_varies() -> None:
    optimizer = make_optimizer(rmsprop(alpha=0.5, centered=True), SIZE)
    parameters, gradient = start(), torch.linspace(0.1, 3.0, SIZE)
    for _ in range(200):
        optimizer.step(parameters, gradient, 1e-3)

    assert torch.isfinite(parameters).all(), "the variance is never negative"


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 5.0), (10.0, 5.0), (5.0, 5.0), (1.0, 1.0), (1e-3, 1e-3)]
)
def test_clip_by_norm(limit: float | None, expected: float) -> None:
    gradient = torch.tensor([3.0, 0.0, -4.0])

    norm = clip_by_norm(gradient, limit)

    assert norm.item() == 5.0, "the norm that it had"
    assert gradient.norm().item() == pytest.approx(expected, rel=1e-5)
    assert torch.allclose(gradient / gradient.norm(), torch.tensor([0.6, 0.0, -0.8])), "the direction stays"


def test_a_part_is_clipped_by_the_norm_of_the_whole() -> None:
    whole, part = torch.tensor([3.0, 0.0, -4.0]), torch.tensor([3.0, 0.0])

    clip_by_norm(part, 1.0, whole.norm())

    assert part.tolist() == pytest.approx([0.6, 0.0])


def test_clipping_nothing_leaves_nothing() -> None:
    gradient = torch.zeros(3)
    assert clip_by_norm(gradient, 1.0).item() == 0.0
    assert gradient.tolist() == [0.0, 0.0, 0.0]
