"""Transitions of n steps: their columns in a replay, and what collecting them requires of an algorithm."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, TypedDict

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rltraining_trainer.dataflow.replay import Column
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks.normalizer import Normalizer

PRIORITY_EPSILON = 1e-6
"""Added to |δ|, so that transitions without an error are sampled now and then."""


class Transitions(TypedDict):
    """K transitions: s, a, and the results of at most n steps."""

    observation: Tensor
    """``[K, ...]`` s."""
    action: Tensor
    """``[K, ...]`` a, in the form that the network takes."""
    reward: Tensor
    """``[K]`` R, the discounted rewards of the k ≤ n steps, clipped and scaled."""
    discount: Tensor
    """``[K]`` γ^k, or 0 if the episode terminated within the k steps."""
    next_observation: Tensor
    """``[K, ...]`` s', the observation after the k steps."""


class Acted(NamedTuple):
    """Actions in B environments, and the network's values for them."""

    action: Tensor
    """``[B, ...]``."""
    value_of_action: Tensor
    """``[B]`` Q(s, a)."""
    value_of_state: Tensor
    """``[B]`` Q(s, a') of the action a' with the highest estimated value."""


class Actor(Protocol):
    """Acts in B environments, which may explore to different degrees."""

    normalizer: Normalizer | None
    """The running statistics of its network, or None."""
    warming_up: bool = True
    """Whether the parameters are still the initial parameters."""
    memory: Tensor | None = None
    """State of its noise after the previous step, or None."""

    def place(self, environments: range, total: int) -> bool:
        """Sets the numbers of the B environments among ``total``. Returns whether the later ones explore less.

        Called before the first action, and after each change. By default all environments explore alike.
        """
        return False

    def act(self, observation: Tensor, first: Tensor) -> Acted:
        """Returns actions for observations ``[B, ...]``. ``first`` ``[B]`` bool: an episode begins."""
        ...

    def value(self, observation: Tensor) -> Tensor:
        """Returns ``value_of_state`` ``[M]`` of any observations ``[M, ...]``."""
        ...

    def to_environment(self, action: Tensor) -> np.ndarray:
        """Converts actions for the environment."""
        ...


def transition_columns(observation: spaces.Space, action: spaces.Space) -> dict[str, Column]:
    """Returns the columns of the transitions of an environment with these spaces.

    Raises:
        BadConfiguration: observations or actions are not one array of numbers.
    """
    seen_shape = _array_shape(
        "observations", observation, "environment.wrappers: [{name: FlattenObservation}]"
    )
    taken_shape = _array_shape("actions", action, "environment.wrappers, or use ppo, a2c, a3c or impala")
    kind = np.float32 if np.issubdtype(observation.dtype, np.floating) else observation.dtype
    seen = Column(seen_shape, torch.from_numpy(np.empty(0, kind)).dtype)
    number = Column((), torch.float32)
    discrete = isinstance(action, spaces.Discrete)
    taken = Column((), torch.int64) if discrete else Column((math.prod(taken_shape),), torch.float32)
    return {
        "observation": seen,
        "action": taken,
        "reward": number,
        "discount": number,
        "next_observation": seen,
    }


def _array_shape(name: str, space: spaces.Space, remedy: str) -> tuple[int, ...]:
    """Returns a space's shape. Raises BadConfiguration with ``remedy`` if it has no array."""
    if space.shape is None or space.dtype is None or space.dtype.kind not in "biuf":
        raise BadConfiguration(
            f"spec.environment: {name} of {space} are not one array of numbers; "
            f"wrap the environment with {remedy}"
        )
    return tuple(space.shape)
