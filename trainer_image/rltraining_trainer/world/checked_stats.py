"""Checks the counts that user code reports."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from rltraining_trainer.dataflow.reports import StatsDelta


def checked_stats(
    steps: int, returns: Tensor | Sequence[float], episodes: int | None, lag: int | None = None
) -> StatsDelta:
    """Returns the counts of user code.

    Raises TypeError or ValueError if ``steps`` or ``episodes`` is not a count.
    """
    values = torch.as_tensor(returns, dtype=torch.float32).detach().cpu().reshape(-1)
    count = len(values) if episodes is None else _counted("episodes", episodes)
    return StatsDelta(_counted("steps", steps), values, count, lag)


def _counted(name: str, value: int) -> int:
    """Returns ``value`` as an int. Raises TypeError for other types, ValueError below 0."""
    try:
        count = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be an integer, not {value!r}") from error
    if count < 0:
        raise ValueError(f"{name} must be at least 0, not {count}")
    return count
