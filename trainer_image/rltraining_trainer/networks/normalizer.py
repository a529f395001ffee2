"""Running mean and variance of observations and returns, as part of the network.

The statistics are frozen parameters. Samplers therefore receive them with the flat parameter
vector, and checkpoints, exported policies and ONNX programs include them. Samplers send the moments
of new observations, and the learner merges them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from rltraining_trainer.environments.packed_space import PackedSpace

CLIP = 10.0
"""Normalised values are clipped to ±10 (baselines and Stable-Baselines3, VecNormalize)."""
EPSILON = 1e-8
"""Added to variances (openai/baselines and Stable-Baselines3, VecNormalize)."""

LARGEST = torch.finfo(torch.float32).max
"""Upper bound of stored means and variances, which are computed in float64 and can exceed float32."""


class Normalizer(nn.Module):
    """Normalises observations ``[N, *shape]``, and rewards by the variance of discounted returns.

    Args:
        shape: Shape of one observation. None: observations are not normalised.
        rewards: Whether the last statistic is of discounted returns.
        packed: Space of packed observations. Their vectors ``[N, *shape]`` are normalised. None:
            observations are not packed.
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
        """Normalises observations ``[N, *shape]`` to float32 within ±``CLIP``."""
        if self.shape is None:
            return observation
        mean, variance = (
            statistic[: self.observation_size].view(self.shape) for statistic in (self.mean, self.variance)
        )
        return ((observation.float() - mean) * (variance + EPSILON).rsqrt()).clamp(-CLIP, CLIP)

    def vectors(self, observation: np.ndarray) -> np.ndarray:
        """Extracts the values to normalise, ``[N, d]``, from observations ``[N, ...]``."""
        if self._packed is not None:
            observation = self._packed.split(observation)[0][:, : self.observation_size]
        return observation.reshape(len(observation), -1)

    def reward_scale(self, moments: Tensor) -> float:
        """Returns the factor of rewards, before they are clipped to ±``CLIP``.

        It is the inverse standard deviation of the discounted returns in the statistics and in ``moments`` together, as in
        Stable-Baselines3, where the statistics include the current step. Otherwise the first rewards
        would not be normalised, and the network would learn values of another scale first.

        Args:
            moments: Moments of the observations and returns that belong to the rewards, as in ``merge``.
        """
        count, mean, variance = (float(part[-1]) for part in (self.count, self.mean, self.variance))
        size, new_mean, squares = float(moments[0]), float(moments[len(self.mean)]), float(moments[-1])
        total = count + size
        between = (new_mean - mean) ** 2 * count * size / total
        return ((count * variance + squares + between) / total + EPSILON) ** -0.5

    @torch.no_grad()
    def merge(
        self, moments: Iterable[Tensor], reduce: Callable[[Tensor, float], float] | None = None
    ) -> None:
        """Merges moments of new observations and returns into the running ones (Chan, Golub and
        LeVeque 1979).

        The statistics stay finite for all finite values. Samplers reject observations beyond
        ``magnitudes.NORMALIZED_MAX``, which would normalise all others to 0.

        Args:
            moments: Each is count, mean and sum of squared deviations ``[1 + 2·d]`` float64. May be
                empty.
            reduce: Sums a tensor over all learners in place. With several learners each calls this
                method with its own moments.
        """
        # Express the moments as sums of deviations from the current mean, which all learners share.
        # Such sums can be added.
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
        self.mean.copy_((mean + shift).clamp_(-LARGEST, LARGEST))
        self.variance.copy_(((count * variance + squares) / total - shift.square()).clamp_(0.0, LARGEST))
