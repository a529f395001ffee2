"""Running mean and variance of observations and returns, as part of the network.

The statistics are frozen parameters: they travel to samplers in the flat parameter vector, and checkpoints, exported policies
and ONNX programs hold them, without any code for it. Samplers send the moments of what they have seen; the learner merges them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from rltraining_trainer.environments.packed_space import PackedSpace

CLIP = 10.0
"""Normalised observations and rewards are clipped to ±10 (openai/baselines and Stable-Baselines3, VecNormalize)."""
EPSILON = 1e-8
"""Added to variances (openai/baselines and Stable-Baselines3, VecNormalize)."""


class Normalizer(nn.Module):
    """Normalises observations ``[N, *shape]``, and rewards by the variance of discounted returns.

    Args:
        shape: of one observation; None leaves observations as they are.
        rewards: whether the last statistic is that of discounted returns.
        packed: the space of observations that are packed, whose vectors ``[N, *shape]`` are normalised; None: they are not.
    """

    def __init__(
        self, shape: Sequence[int] | None, *, rewards: bool, packed: PackedSpace | None = None
    ) -> None:
        super().__init__()
        self._packed = packed
        self.shape, self.rewards = None if shape is None else tuple(shape), rewards
        self.observation_size = 0 if shape is None else math.prod(shape)
        size = self.observation_size + rewards
        self.count = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.mean = nn.Parameter(torch.zeros(size), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(size), requires_grad=False)

    def forward(self, observation: Tensor) -> Tensor:
        """Observations ``[N, *shape]`` as float32 with about mean 0 and variance 1, within ±``CLIP``."""
        if self.shape is None:
            return observation
        mean, variance = (
            statistic[: self.observation_size].view(self.shape) for statistic in (self.mean, self.variance)
        )
        return ((observation.float() - mean) * (variance + EPSILON).rsqrt()).clamp(-CLIP, CLIP)

    def vectors(self, observation: np.ndarray) -> np.ndarray:
        """What statistics are kept of, ``[N, d]``, in observations ``[N, ...]`` as environments give them."""
        if self._packed is not None:
            observation = self._packed.split(observation)[0][:, : self.observation_size]
        return observation.reshape(len(observation), -1)

    @property
    def reward_scale(self) -> float:
        """What rewards are multiplied by, before they are clipped to ±``CLIP``; 1 without ``rewards``."""
        return float((self.variance[-1] + EPSILON).rsqrt()) if self.rewards else 1.0

    @torch.no_grad()
    def merge(
        self, moments: Iterable[Tensor], reduce: Callable[[Tensor, float], float] | None = None
    ) -> None:
        """Merges moments of new observations and returns into the running ones (Chan, Golub and LeVeque 1979).

        Args:
            moments: each count, mean and sum of squared deviations ``[1 + 2·d]`` float64; perhaps none.
            reduce: sums over all learners in place, where several of them call this at once, each with its own moments.
        """
        # Express all moments as sums of deviations from the present mean, which all learners share: those can be added.
        mean, variance, count = self.mean.double(), self.variance.double(), self.count.double()
        sums = torch.zeros(1 + 2 * len(mean), dtype=torch.float64, device=mean.device)
        for part in moments:
            part = part.to(mean.device)
            size, shift = part[0], part[1 : 1 + len(mean)] - mean
            sums[0] += size
            sums[1 : 1 + len(mean)] += size * shift
            sums[1 + len(mean) :] += part[1 + len(mean) :] + size * shift.square()
        if reduce is not None:
            reduce(sums, 0.0)

        # Weigh the old moments by their count.
        size, deviation, squares = sums[0], sums[1 : 1 + len(mean)], sums[1 + len(mean) :]
        total = count + size
        if not total > 0:
            return
        shift = deviation / total
        self.count.copy_(total)
        self.mean.copy_(mean + shift)
        self.variance.copy_(((count * variance + squares) / total - shift.square()).clamp_(min=0.0))
