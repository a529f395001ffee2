"""Warns of observations and rewards that are too large for a network to learn well."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rltraining_api.algorithms import R2d2
from rltraining_api.algorithms.apex import Apex
from rltraining_api.contract import Warning
from rltraining_api.environment import Normalize
from rltraining_api.job import JobSpec
from torch import Tensor

LARGE_OBSERVATION, LARGE_REWARD = 100.0, 1000.0
"""dqnApex learns LunarLander-v3, with rewards of ±100, without scaling (docs/defaults.md)."""


def scale_warnings(spec: JobSpec, settings: Apex, batch: Mapping[str, Tensor]) -> Iterator[Warning]:
    """Yields a warning for each of observations and rewards that are large in a batch of a replay.

    Args:
        spec: The job's spec. Observations that are normalised may have any scale.
        settings: Settings of the algorithm. Rewards of R2D2, which learns rescaled values, may have any scale.
        batch: A batch with the columns ``observation`` and ``reward``, as the algorithm uses them.
    """
    environment, observation = spec.environment, batch["observation"]
    normalize = environment.normalize or Normalize()
    is_raw = observation.is_floating_point() and not normalize.observations
    if is_raw and (largest := _largest(observation)) > LARGE_OBSERVATION:
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


def _largest(numbers: Tensor) -> float:
    return float(numbers.abs().max())
