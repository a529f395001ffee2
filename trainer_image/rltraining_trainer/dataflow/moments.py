"""Moments of observations and returns, which samplers send for the network's running statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.transport import Payload

NO_MOMENTS = torch.empty(0, 0, dtype=torch.float64)
"""Sent if nothing is normalized."""


def moments_of(values: Tensor) -> Tensor:
    """Returns count, mean and sum of squared deviations of values ``[N, d]`` as ``[1 + 2·d]``
    float64.

    Requires N ≥ 1.
    """
    values = values.double()
    mean = values.mean(0)
    return torch.cat((values.new_tensor([len(values)]), mean, (values - mean).square().sum(0)))


def moments_field(payload: Payload) -> Tensor:
    """Reads the optional field "moments" of a message, ``[U, 1 + 2·d]`` float64.

    Raises:
        TypeError: The field is not a float64 matrix.
    """
    if not isinstance(payload, dict) or "moments" not in payload:
        return NO_MOMENTS
    moments = field(payload, "moments", Tensor)
    if moments.dim() != 2 or moments.dtype != torch.float64:
        raise TypeError(
            f"the field moments must be a matrix (float64), not {list(moments.shape)} ({moments.dtype})"
        )
    return moments
