"""Checks of the masks that say which actions are valid."""

from __future__ import annotations

from typing import Any

import numpy as np

from rltraining_trainer.environments.packed_space import PackedSpace, WrongPart


def check_masks(space: PackedSpace, rows: np.ndarray, exempt: np.ndarray | None) -> None:
    """Checks that each factor has a valid action in each row ``[B, P]``.

    Args:
        exempt: ``[B]`` bool, rows in which all actions are made valid instead, since none is taken there.

    Raises:
        WrongPart: a row has no valid action.
    """
    part = space.mask
    if part is None:
        return
    valid = space.part_of(rows, part) != 0
    bounds = np.cumsum((0, *space.choices[:-1]))
    empty = ~np.logical_or.reduceat(valid, bounds, axis=1)
    if not empty.any():
        return
    if exempt is not None:
        space.part_of(rows, part)[empty.any(1) & exempt] = 1
        empty[exempt] = False
    if empty.any():
        environment, factor = (int(index[0]) for index in np.nonzero(empty))
        which = "no action is valid" if len(space.choices) == 1 else f"factor {factor} has no valid choice"
        raise WrongPart(
            f"must return a mask ({part.name}) in which an action is valid; in environment {environment} of this process "
            f"{which}, and its episode goes on"
        )


def mask_array(value: Any, size: int) -> np.ndarray | None:
    """A mask ``[size]`` of 0 and 1, of what an environment gave as one; None if it is of another shape."""
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    if array.shape != (size,) or array.dtype.kind not in "biuf":
        return None
    return (array != 0).astype(np.uint8)
