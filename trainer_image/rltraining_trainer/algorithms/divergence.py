"""Describes a loss or gradient that is not finite: the likely cause, and the settings to change."""

from __future__ import annotations

from collections.abc import Mapping

from rltraining_api.base import ApiModel
from torch import Tensor

from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.errors import Diverged

GIVEN = {"observation": "an observation", "next_observation": "an observation", "reward": "a reward"}
"""Columns with values of the environment, and their names in messages."""
LARGE = 1e6
"""Observations beyond this are a more likely cause than the learning rate."""


def diverged(
    where: str, terms: Mapping[str, float | Tensor], unroll: Unroll | None, settings: ApiModel
) -> Diverged:
    """Returns the error for an algorithm with one learning rate and these settings (see ``describe_divergence``)."""
    algorithm = type(settings).__name__.lower()  # the model Impala is spec.algorithm.impala
    return describe_divergence(where, terms, unroll, f"spec.algorithm.{algorithm}.learningRate")


def describe_divergence(
    where: str, terms: Mapping[str, float | Tensor], data: Mapping[str, object] | None, fields: str
) -> Diverged:
    """Returns the error, which names the likely cause: the environment's values, or the learning rate.

    Args:
        where: Place in the run, such as "update 3".
        terms: Terms of the loss.
        data: Columns of the update, if this process has them.
        fields: Settings of the learning rate.
    """
    at = f"NaN in the loss at {where}"
    largest = 0.0
    for column, name in GIVEN.items():
        values = data.get(column) if data is not None else None
        if not isinstance(values, Tensor) or not values.is_floating_point() or values.numel() == 0:
            continue
        magnitude = float(values.abs().amax())
        if not magnitude < float("inf"):
            return Diverged(f"{at}: the environment gave {name} that is NaN or infinite")
        if column != "reward":
            largest = max(largest, magnitude)
    figures = ", ".join(f"{name} {float(term):.3g}" for name, term in terms.items())
    if largest > LARGE:
        return Diverged(
            f"{at} ({figures}): the environment gave an observation of magnitude {largest:.3g}; scale it "
            "in the environment, or set environment.normalize: {observations: true}"
        )
    return Diverged(f"{at} ({figures}): lower {fields} or gradientClip, or clip rewards with rewardClip")
