"""ε-greedy exploration with recurrent networks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.algorithms.exploration import apex_epsilon
from rltraining_trainer.networks import GreedyActions
from rltraining_trainer.networks.unpack import MASKED


class EpsilonGreedy:
    """Acts ε-greedily on values ``[B, n]``, with a separate ε for each of B environments.

    `UnrollCollector` uses it like an action distribution.
    """

    def __init__(self, actions: GreedyActions, largest: float, alpha: float) -> None:
        """``largest``, ``alpha``: arguments of the schedule of Ape-X (see ``apex_epsilon``)."""
        self._actions, self._largest, self._alpha = actions, largest, alpha
        self._epsilon = torch.zeros(0)

    def place(self, environments: range, total: int) -> np.ndarray:
        """Sets the numbers of the B environments among ``total``.

        Returns ``[B]`` bool, which of them are in the greedier half.
        """
        self._epsilon = apex_epsilon(self._largest, self._alpha, environments, total)
        return np.array(environments) >= total // 2

    def noise(self, *batch: int) -> Tensor:
        return torch.rand(*batch, 2)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns actions ``[B]`` for values ``[B, n]``.

        ``noise`` ``[B, 2]`` chooses whether to explore, and the random action.
        """
        allowed = parameters > MASKED
        number = (noise[:, 1] * allowed.sum(-1)).long() + 1
        random = (allowed.cumsum(-1) == number.unsqueeze(-1)).long().argmax(-1)
        return torch.where(noise[:, 0] < self._epsilon, random, self._actions.mode(parameters))

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """Returns log μ(a|s) ``[..., B]``."""
        allowed = (parameters > MASKED).sum(-1)
        greedy = self._actions.mode(parameters) == action
        return (self._epsilon / allowed + (1.0 - self._epsilon) * greedy).log()

    def to_environment(self, action: Tensor) -> np.ndarray:
        return self._actions.to_environment(action)
