"""Checks masks of valid actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rltraining_trainer.environments.mistakes import WrongObservation
from rltraining_trainer.environments.packed_space import PackedSpace


def fill_empty_masks(space: PackedSpace, rows: np.ndarray) -> dict[int, WrongObservation]:
    """Makes all actions valid in the rows ``[B, P]`` in which a factor has no valid choice.

    Returns:
        The errors by row, which are raised if the episode continues.
    """
    part = space.mask
    if part is None:
        return {}
    empty = empty_factors(space, rows)
    if not empty.any():
        return {}
    mask = space.part_of(rows, part)
    errors = {}
    for row in np.flatnonzero(empty.any(1)).tolist():
        mask[row] = 1
        factor = int(empty[row].argmax())
        single = len(space.choices) == 1
        which = "no action is valid" if single else f"factor {factor} has no valid choice"
        errors[row] = WrongObservation(
            f"must return a mask ({part.name}) in which an action is valid; in environment {row} "
            f"of this process {which}, and its episode continues"
        )
    return errors


def empty_factors(space: PackedSpace, rows: np.ndarray) -> np.ndarray:
    """Returns ``[B, F]`` bool, whether a factor of the action has no valid choice in rows ``[B, P]``."""
    part = space.mask
    assert part is not None
    bounds = np.cumsum((0, *space.choices[:-1]))
    return ~np.logical_or.reduceat(space.part_of(rows, part) != 0, bounds, axis=1)


def mask_array(value: Any, size: int) -> np.ndarray | None:
    """Returns an environment's mask as ``[size]`` of 0 and 1, or None if its shape or a value is wrong."""
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    if array.shape != (size,) or array.dtype.kind not in "biuf":
        return None
    valid = array == 1
    return valid.astype(np.uint8) if (valid | (array == 0)).all() else None
