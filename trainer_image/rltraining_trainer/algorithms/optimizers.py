"""Optimizers on one flat vector, of which all parameters of a network are views. A step therefore takes few operations.

Their state consists of a few tensors of the same size. Such a state is easy to store, to cut into slices for parameter servers,
and to compare bit for bit. ``torch.optim`` is the oracle of Adam and SGD in the tests. It is not used here, because its first
step imports torch's compiler, which takes seconds, and because it updates one tensor after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from rltraining_api.algorithms.optimizer import Optimizer as OptimizerSettings
from torch import Tensor


class Optimizer(Protocol):
    """Updates ``parameters`` in place."""

    def step(self, parameters: Tensor, gradient: Tensor, learning_rate: float) -> None: ...
    def get_state(self) -> dict[str, Any]: ...
    def set_state(self, state: dict[str, Any]) -> None: ...


class RmsProp:
    """RMSProp (Tieleman and Hinton 2012) as in ``tf.train.RMSPropOptimizer``, used by the papers.

        ν ← α ν + (1 − α) g²,    μ ← α μ + (1 − α) g,    m ← momentum · m + rate · g / √(ν − μ² + ε)

    followed by a step of −m. Without ``centered`` μ is 0. ``torch.optim.RMSprop`` differs in two
    ways. It adds ε outside the root, so that the published 0.01 acts like 10⁻⁴ here. Its ν starts
    at 0 instead of 1, so that the first steps are as large as the learning rate.
    """

    def __init__(
        self,
        size: int,
        device: torch.device,
        *,
        alpha: float,
        epsilon: float,
        momentum: float,
        centered: bool,
    ) -> None:
        self._alpha, self._epsilon, self._momentum = alpha, epsilon, momentum
        self._square = torch.ones(size, device=device)
        self._mean = torch.zeros(size if centered else 0, device=device)
        self._buffer = torch.zeros(size if momentum else 0, device=device)

    def step(self, parameters: Tensor, gradient: Tensor, learning_rate: float) -> None:
        self._square.mul_(self._alpha).addcmul_(gradient, gradient, value=1 - self._alpha)
        variance = self._square
        if self._mean.numel():
            self._mean.lerp_(gradient, 1 - self._alpha)
            # Rounding can make the variance of a nearly constant gradient negative, and the root
            # NaN.
            variance = variance.addcmul(self._mean, self._mean, value=-1).clamp_(min=0.0)
        scale = variance.add(self._epsilon).sqrt_()
        if self._momentum:
            self._buffer.mul_(self._momentum).addcdiv_(gradient, scale, value=learning_rate)
            parameters.sub_(self._buffer)
        else:
            parameters.addcdiv_(gradient, scale, value=-learning_rate)

    def get_state(self) -> dict[str, Any]:
        return {"square": self._square, "mean": self._mean, "buffer": self._buffer}

    def set_state(self, state: dict[str, Any]) -> None:
        self._square.copy_(state["square"])
        self._mean.copy_(state["mean"])
        self._buffer.copy_(state["buffer"])


class Adam:
    """Adam (Kingma and Ba 2014) as in ``torch.optim.Adam``."""

    def __init__(
        self, size: int, device: torch.device, *, beta1: float, beta2: float, epsilon: float
    ) -> None:
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon
        self._steps = 0
        self._mean = torch.zeros(size, device=device)
        self._square = torch.zeros(size, device=device)

    def step(self, parameters: Tensor, gradient: Tensor, learning_rate: float) -> None:
        self._steps += 1
        self._mean.lerp_(gradient, 1 - self._beta1)
        self._square.mul_(self._beta2).addcmul_(gradient, gradient, value=1 - self._beta2)
        scale = self._square.sqrt().div_(math.sqrt(1 - self._beta2**self._steps)).add_(self._epsilon)
        parameters.addcdiv_(self._mean, scale, value=-learning_rate / (1 - self._beta1**self._steps))

    def get_state(self) -> dict[str, Any]:
        return {"steps": self._steps, "mean": self._mean, "square": self._square}

    def set_state(self, state: dict[str, Any]) -> None:
        self._steps = state["steps"]
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])


class Sgd:
    """Stochastic gradient descent, with momentum as in ``torch.optim.SGD``."""

    def __init__(self, size: int, device: torch.device, *, momentum: float) -> None:
        self._momentum = momentum
        self._buffer = torch.zeros(size if momentum else 0, device=device)

    def step(self, parameters: Tensor, gradient: Tensor, learning_rate: float) -> None:
        if self._momentum:
            gradient = self._buffer.mul_(self._momentum).add_(gradient)
        parameters.add_(gradient, alpha=-learning_rate)

    def get_state(self) -> dict[str, Any]:
        return {"buffer": self._buffer}

    def set_state(self, state: dict[str, Any]) -> None:
        self._buffer.copy_(state["buffer"])


_CPU = torch.device("cpu")


def make_optimizer(settings: OptimizerSettings, size: int, device: torch.device = _CPU) -> Optimizer:
    """Returns the optimizer that ``spec.algorithm.*.optimizer`` requests, for ``size`` parameters on ``device``."""
    if settings.adam is not None:
        adam = settings.adam
        return Adam(size, device, beta1=adam.beta1, beta2=adam.beta2, epsilon=adam.epsilon)
    if settings.sgd is not None:
        return Sgd(size, device, momentum=settings.sgd.momentum)
    assert settings.rmsprop is not None, "the contract lets exactly one optimizer through"
    rms = settings.rmsprop
    return RmsProp(
        size, device, alpha=rms.alpha, epsilon=rms.epsilon, momentum=rms.momentum, centered=rms.centered
    )


def clip_by_norm(gradient: Tensor, limit: float | None) -> Tensor:
    """Scales ``gradient`` in place so that its norm is at most ``limit``. None: no limit. Returns the norm before, ``[]``."""
    norm = torch.linalg.vector_norm(gradient)
    if limit is not None:
        gradient.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
    return norm


def clip_runs(gradient: Tensor, limit: float | None, sizes: Sequence[int]) -> Tensor:
    """Clips each of the consecutive segments of ``gradient`` by its norm.

    Returns the norm ``[]`` of the whole gradient before clipping.
    """
    if len(sizes) == 1 or limit is None:
        return clip_by_norm(gradient, limit)
    return torch.linalg.vector_norm(torch.stack([clip_by_norm(run, limit) for run in gradient.split(sizes)]))
