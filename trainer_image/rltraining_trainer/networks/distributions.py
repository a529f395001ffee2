"""Action distributions as stateless functions of their parameters.

The parameters of a distribution are one tensor ``[..., P]``, the output of the policy head.
Complete unrolls can therefore be stored, sent and differentiated in one operation. Sampling takes
noise as an argument, so that the caller can generate it for a complete unroll.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rltraining_trainer.networks.actions import Actions, BoxActions, DiscreteActions

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_QUADRATURE_NODES = 16
"""Number of nodes for the entropy of squashed Gaussians. Its error is below 0.01 up to σ = 1.5."""


class Distribution(Actions, Protocol):
    """The interface of stochastic policies' action distributions."""

    parameter_size: int
    """P, the number of parameters of one distribution."""
    gaussians: int
    """Number of state-independent log standard deviations, the last parameters."""
    action_shape: tuple[int, ...]
    """Shape of one action as a tensor: () or (dimensions,)."""

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """Returns log π(action) ``[...]``."""
        ...

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (log π(action), H(π)), each ``[...]``, in one pass."""
        ...


class Categorical(DiscreteActions):
    """The distribution over a ``spaces.Discrete``. The parameters are logits ``[..., n]``."""

    action_shape: tuple[int, ...] = ()
    gaussians = 0

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__(space)
        self.parameter_size = int(space.n)

    def noise(self, *batch: int) -> Tensor:
        # Gumbel noise.
        return torch.empty(*batch, self.parameter_size).exponential_().log_().neg_()

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        # The Gumbel-max trick samples from softmax(parameters).
        return torch.argmax(parameters + noise, -1)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.argmax(-1)

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        return parameters.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = parameters.log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1), entropy


class DiagonalGaussian(BoxActions):
    """The Gaussian over a ``spaces.Box``. Parameters: mean and log standard deviation ``[..., 2·d]``.

    Bounded actions are scaled to [-1, 1]. ``to_environment`` scales them back and clips them.
    Log-probabilities are computed before clipping, as in the published versions of PPO and IMPALA.

    Args:
        space: Space of one action.
        bounds: Bounds to which the log standard deviation is clipped. None: no bound.
    """

    def __init__(self, space: spaces.Box, bounds: tuple[float | None, float | None] = (None, None)) -> None:
        super().__init__(space)
        self._bounds = bounds
        dimensions = int(np.prod(space.shape))
        self.action_shape: tuple[int, ...] = (dimensions,)
        self.gaussians = dimensions
        self.parameter_size = 2 * dimensions

    def noise(self, *batch: int) -> Tensor:
        return torch.randn(*batch, *self.action_shape)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = self._split(parameters)
        return mean + log_std.exp() * noise

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.chunk(2, -1)[0]

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        mean, log_std = self._split(parameters)
        z = (action - mean) * (-log_std).exp()
        # One operation for ½z² + log σ, since minibatches are small (python -m tests.bench ppo).
        return -_LOG_SQRT_2PI * z.shape[-1] - torch.addcmul(log_std, z, z, value=0.5).sum(-1)

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        entropy = (self._split(parameters)[1] + 0.5 + _LOG_SQRT_2PI).sum(-1)
        return self.log_prob(parameters, action), entropy

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Splits the parameters into mean and log standard deviation, each ``[..., d]``."""
        mean, log_std = parameters.chunk(2, -1)
        low, high = self._bounds
        if low is None and high is None:
            return mean, log_std
        # Acting needs no gradients, and a function with gradients takes three times as long.
        if not log_std.requires_grad:
            return mean, log_std.clamp(low, high)
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        return mean, _Bounded.apply(log_std, low, high)


class SquashedGaussian(DiagonalGaussian):
    """The distribution of tanh(u) with u from a ``DiagonalGaussian``, which respects all bounds.

    See Haarnoja et al. 2018, arXiv 1812.05905, appendix C. Actions are stored as u, because tanh(u)
    rounds to 1 for u ≥ 9, and ``environment_action`` squashes them. Log-probabilities refer
    to tanh(u).
    """

    def __init__(self, space: spaces.Box, bounds: tuple[float | None, float | None] = (None, None)) -> None:
        super().__init__(space, bounds)
        nodes, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE_NODES)
        self._nodes = torch.tensor(nodes, dtype=torch.float32)
        self._weights = torch.tensor(weights / weights.sum(), dtype=torch.float32)

    def environment_action(self, action: Tensor) -> Tensor:
        return super().environment_action(action.tanh())

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        return super().log_prob(parameters, action) - _log_slope(action).sum(-1)

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns log π and the entropy H(u) + E[log tanh'(u)], by Gauss-Hermite quadrature."""
        mean, log_std = self._split(parameters)
        nodes, weights = (part.to(parameters) for part in (self._nodes, self._weights))
        slopes = _log_slope(mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * nodes)
        entropy = log_std + 0.5 + _LOG_SQRT_2PI + (slopes * weights).sum(-1)
        return self.log_prob(parameters, action), entropy.sum(-1)


def _log_slope(u: Tensor) -> Tensor:
    """Returns log tanh'(u) = log(1 − tanh² u), also where tanh² u rounds to 1."""
    return 2.0 * (math.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u))


class _Bounded(torch.autograd.Function):
    """Clips values to [low, high]. Values outside keep the gradients that lead back.

    The gradient of ``clamp`` is 0 there. A log standard deviation that is a parameter would then stay at
    its bound for the rest of the run.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(values)
        ctx.bounds = low, high
        return values.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (values,), (low, high), (gradient,) = ctx.saved_tensors, ctx.bounds, gradients
        leads_away = ((values > high) & (gradient < 0)) | ((values < low) & (gradient > 0))
        return gradient.masked_fill(leads_away, 0.0), None, None
