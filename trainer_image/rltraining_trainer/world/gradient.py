"""What a sampler sends with `SamplerGradients.push`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rltraining_trainer.dataflow import NO_MOMENTS
from rltraining_trainer.world.checked_stats import checked_stats

_NO_RETURNS = torch.zeros(0)


class RolloutStats(NamedTuple):
    """The statistics of a rollout, which are sent once. Empty by default."""

    steps: int = 0
    """Environment steps."""
    episodes: int = 0
    """Episodes that ended."""
    returns: Tensor = _NO_RETURNS
    """``[K]`` undiscounted returns of ended episodes."""
    moments: Tensor = NO_MOMENTS
    """``[U, 1 + 2·d]`` of observations."""


class Gradient(NamedTuple):
    """A gradient as a sampler sends it."""

    values: Tensor
    """``[N]`` flat. The memory may be reused after the next gradient was sent."""
    weight: float
    """Weight in the mean over samplers: the number of steps in a mean, or 1 for a sum."""
    terms: dict[str, float]
    """Terms of the loss, means over its steps, and gradient_norm of ``values`` before clipping."""


def fields_of(gradient: Gradient, stats: RolloutStats, size: int) -> dict[str, Any]:
    """Returns the fields of a message with a gradient of ``size`` numbers. Converts numbers as user code computes them.

    Raises TypeError or ValueError for a gradient of another shape, or a count or a term that is not a number.
    """
    if gradient.values.shape != (size,):
        raise ValueError(
            f"a gradient must have the shape of the parameters of world.start(), [{size}], not "
            f"{list(gradient.values.shape)}"
        )
    checked = checked_stats(stats.steps, stats.returns, stats.episodes)
    return {
        "gradient": gradient.values,
        "weight": float(gradient.weight),
        "terms": {name: float(term) for name, term in gradient.terms.items()},
        "steps": checked.steps,
        "episodes": checked.episodes,
        "returns": checked.returns,
        "moments": stats.moments,
    }
