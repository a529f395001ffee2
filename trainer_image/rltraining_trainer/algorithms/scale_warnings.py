"""Warns of observations and rewards that are too large for a network to learn well."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from gymnasium import Space, spaces
from rltraining_api.algorithms import R2d2
from rltraining_api.algorithms.apex import Apex
from rltraining_api.contract import Warning
from rltraining_api.environment import Normalize
from rltraining_api.job import JobSpec
from torch import Tensor

from rltraining_trainer.environments.packed_space import PackedSpace
from rltraining_trainer.networks.encoders import vector_encoder

LARGE_OBSERVATION, LARGE_REWARD = 100.0, 1000.0
"""dqnApex learns LunarLander-v3, with rewards of ±100, without scaling (docs/defaults.md)."""


def scale_warnings(
    spec: JobSpec, space: Space, settings: Apex, batch: Mapping[str, Tensor]
) -> Iterator[Warning]:
    """Yields a warning for each of observations and rewards that are large in a batch of a replay.

    Args:
        spec: The job's spec. Observations that are normalised may have any scale.
        space: The space of observations.
        settings: Settings of the algorithm. Rewards of R2D2, which learns rescaled values, may have any scale.
        batch: A batch with the columns ``observation`` and ``reward``, as the algorithm uses them.
    """
    environment, largest = spec.environment, 0.0
    if not (environment.normalize or Normalize()).observations:
        largest = _largest_input(space, batch["observation"])
    if largest > LARGE_OBSERVATION:
        message = (
            f"observations of environment {environment.id!r} reach {largest:,.0f}, from which a network hardly learns: "
            "set spec.environment.normalize.observations to true, or scale them in the environment"
        )
        yield Warning(reason="LargeObservations", message=message)
    if not isinstance(settings, R2d2) and (largest := _largest(batch["reward"])) > LARGE_REWARD:
        scale = settings.reward_scale * 10.0 ** (1 - math.floor(math.log10(largest)))
        message = (
            f"rewards of environment {environment.id!r} reach {largest:,.0f}, from which a network hardly learns: "
            f"set spec.algorithm.{spec.algorithm.name}.rewardScale to {scale:g}, which changes no reported return"
        )
        yield Warning(reason="LargeRewards", message=message)


def _largest_input(space: Space, observation: Tensor) -> float:
    """Returns the largest number that an MLP receives, among the numbers that ``normalize.observations`` would change.

    Indices and images are not among them: the network encodes or scales them, as it does integers with usual bounds.
    """
    if isinstance(space, PackedSpace):
        vectors = space.split(observation.numpy())[0][..., : space.vector_size]
        return float(np.abs(vectors).max(initial=0.0))
    encoder = vector_encoder(space) if isinstance(space, spaces.Box) and space.dtype != np.uint8 else None
    return 0.0 if encoder is None else _largest(encoder(observation))


def _largest(numbers: Tensor) -> float:
    return float(numbers.abs().max())
