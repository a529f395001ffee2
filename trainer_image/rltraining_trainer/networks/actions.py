"""From what a network puts out to actions that an environment takes: what acting needs, whatever the algorithm."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor


class Actions(Protocol):
    """How a network's output, ``[..., P]``, becomes actions."""

    def noise(self, *batch: int) -> Tensor:
        """Noise for ``batch`` draws: what ``sample`` takes."""
        ...

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Actions ``[...]`` + the shape of one from the network's output ``[..., P]``."""
        ...

    def mode(self, parameters: Tensor) -> Tensor:
        """The most likely action, or the only one."""
        ...

    def environment_action(self, action: Tensor) -> Tensor:
        """Actions as the environment's space wants them."""
        ...

    def to_environment(self, action: Tensor) -> np.ndarray:
        """``environment_action``, as the environment takes it."""
        ...


class DiscreteActions:
    """One of n actions (``spaces.Discrete``), counted from 0."""

    def __init__(self, space: spaces.Discrete) -> None:
        self._start = int(space.start)

    def environment_action(self, action: Tensor) -> Tensor:
        return action + self._start if self._start else action

    def to_environment(self, action: Tensor) -> np.ndarray:
        return self.environment_action(action).numpy()


class BoxActions:
    """A vector of d real numbers (``spaces.Box``): every bounded one runs from -1 to 1, the others are as they are."""

    def __init__(self, space: spaces.Box) -> None:
        low = torch.tensor(space.low, dtype=torch.float32).reshape(-1)
        high = torch.tensor(space.high, dtype=torch.float32).reshape(-1)
        bounded = torch.isfinite(high - low)
        self._space = space
        self._low, self._high = low, high
        self._scale = torch.where(bounded, (high - low) / 2, 1.0)
        self._center = torch.where(bounded, (high + low) / 2, 0.0)

    def environment_action(self, action: Tensor) -> Tensor:
        scaled = torch.clamp(action * self._scale + self._center, self._low, self._high)
        return scaled.reshape(*action.shape[:-1], *self._space.shape)

    def to_environment(self, action: Tensor) -> np.ndarray:
        scaled, space = self.environment_action(action).numpy(), self._space
        if scaled.dtype == space.dtype:
            return scaled
        return scaled.astype(space.dtype).clip(space.low, space.high)  # a bound in float32 may lie outside


class GreedyActions(DiscreteActions):
    """The action of the highest value; the network puts out the values of all, ``[..., n]``."""

    def noise(self, *batch: int) -> Tensor:
        return torch.empty(*batch, 0)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        return self.mode(parameters)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.argmax(-1)


class DeterministicActions(BoxActions):
    """The action that the network puts out, ``[..., d]``, from -1 to 1."""

    def noise(self, *batch: int) -> Tensor:
        return torch.empty(*batch, 0)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        return self.mode(parameters)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters
