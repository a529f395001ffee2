"""Reduces several gradients to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor


def reduce_gradients(
    gradients: Sequence[Tensor], weights: Sequence[float], reduction: Literal["Mean", "Sum"]
) -> Tensor:
    """Returns the sum of gradients ``[n]``, or their mean weighted by the number of steps of each.

    Returns a single gradient unchanged, bit for bit, and a new tensor for several.
    """
    if len(gradients) == 1:
        return gradients[0]
    total = sum(weights)
    if reduction == "Sum" or total == 0.0:
        shares = [1.0 if reduction == "Sum" else 0.0] * len(gradients)
    else:
        shares = [weight / total for weight in weights]
    reduced = torch.mul(gradients[0], shares[0])
    for gradient, share in zip(gradients[1:], shares[1:], strict=True):
        reduced.add_(gradient, alpha=share)
    return reduced
