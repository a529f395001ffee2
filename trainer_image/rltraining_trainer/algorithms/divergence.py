"""What is said of a loss or gradient that is not finite."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from rltraining_api.base import ApiModel
from torch import Tensor

from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.errors import Diverged


def diverged(
    where: str, terms: Mapping[str, float | Tensor], unroll: Unroll | None, settings: ApiModel
) -> Diverged:
    """The error whose one sentence says what is not finite, and where to look.

    Args:
        where: "update 3".
        terms: of the loss.
        unroll: what was learnt from, if it is here.
        settings: of an algorithm that has one learning rate.
    """
    at = f"NaN in the loss at {where}"
    inputs = (("an observation", unroll["observation"]), ("a reward", unroll["reward"])) if unroll else ()
    for name, values in inputs:
        if values.is_floating_point() and not bool(torch.isfinite(values).all()):
            return Diverged(f"{at}: the environment gave {name} that is NaN or infinite")
    figures = ", ".join(f"{name} {float(term):.3g}" for name, term in terms.items())
    algorithm = type(settings).__name__.lower()  # the model Impala is spec.algorithm.impala
    return Diverged(
        f"{at} ({figures}): lower spec.algorithm.{algorithm}.learningRate or gradientClip, "
        "or clip rewards with rewardClip"
    )
