"""Conversion of a network's output to actions of an environment, for all algorithms."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor


class Actions(Protocol):
    """Converts a network's output ``[..., P]`` to actions."""

    def noise(self, *batch: int) -> Tensor:
        """Returns the noise that ``sample`` needs for ``batch`` actions."""
        ...

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Samples actions ``[..., *shape]`` from the network's output ``[..., P]``."""
        ...

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the most likely action."""
        ...

    def environment_action(self, action: Tensor) -> Tensor:
        """Returns actions in the range and shape of the environment's space."""
        ...

    def to_environment(self, action: Tensor) -> np.ndarray:
        """Returns ``environment_action`` as an array for the environment."""
        ...


class DiscreteActions:
    """Actions of a ``spaces.Discrete``, counted from 0."""

    def __init__(self, space: spaces.Discrete) -> None:
        self._start = int(space.start)

    def environment_action(self, action: Tensor) -> Tensor:
        return action + self._start if self._start else action

    def to_environment(self, action: Tensor) -> np.ndarray:
        return self.environment_action(action).numpy()


class BoxActions:
    """Actions of a ``spaces.Box`` with d numbers. Bounded ones are scaled from [-1, 1]."""

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
        # A bound may be exceeded when it is rounded to float32.
        return scaled.astype(space.dtype).clip(space.low, space.high)


class GreedyActions(DiscreteActions):
    """Selects the action with the highest value, from the values ``[..., n]`` of all actions."""

    def noise(self, *batch: int) -> Tensor:
        return torch.empty(*batch, 0)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        return self.mode(parameters)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.argmax(-1)


class DeterministicActions(BoxActions):
    """Uses the network's output ``[..., d]`` in [-1, 1] as the action."""

    def noise(self, *batch: int) -> Tensor:
        return torch.empty(*batch, 0)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        return self.mode(parameters)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters
