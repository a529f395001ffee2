"""Converts the observations passed to ``Policy.act`` to a batch for the network."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rltraining_trainer.environments.masks import empty_factors
from rltraining_trainer.environments.mistakes import WrongObservation
from rltraining_trainer.environments.nested_spaces import dotted
from rltraining_trainer.environments.packed_space import MASK_KEY, PackedSpace, Part


def to_batch(space: spaces.Space, observation: Any, action_mask: Any) -> tuple[np.ndarray, bool]:
    """Returns observations as a batch ``[B, ...]`` for the network, and whether a single one was
    given.

    Args:
        space: Space of one observation of the network.
        observation: One observation of the environment, or a batch of them.
        action_mask: ``[n]`` or ``[B, n]``, needed if the masks are not part of the observations.

    Raises:
        ValueError: A part or the mask is missing, has another shape or type than in training, or a
            mask has no valid action.
    """
    if not isinstance(space, PackedSpace):
        array = _array(observation, "observations", space)
        shape = space.shape or ()
        single = array.ndim == len(shape)
        batch = None if single or not array.ndim else len(array)
        return _batched("observations", array, shape, batch).astype(space.dtype, copy=False), single
    if space.mask_from_info and action_mask is None:
        raise ValueError('this policy needs action_mask: info["action_mask"] of the observation')

    # The first part of the observation decides whether this is a batch.
    names = [_name(part) for part in space.parts]
    arrays = [
        _array(_value(part, observation, action_mask), name, part.space, is_mask=part.is_mask)
        for part, name in zip(space.parts, names, strict=True)
    ]
    single = arrays[0].ndim == len(space.parts[0].shape)
    batch = None if single or not arrays[0].ndim else len(arrays[0])

    # Pack the parts into rows.
    values = [
        _batched(name, array, part.shape, batch)
        for part, name, array in zip(space.parts, names, arrays, strict=True)
    ]
    rows = space.pack_values(values, batch or len(values[0]))
    _check_masks(space, rows)
    return rows, single


def _value(part: Part, observation: Any, action_mask: Any) -> Any:
    """Returns the value of a part as it was given."""
    if part.is_mask and not part.path:
        return action_mask
    try:
        return part.of(observation)
    except WrongObservation as error:
        raise ValueError(f"act was given no part {dotted(part.path)!r}") from error


def _array(value: Any, name: str, space: spaces.Space, *, is_mask: bool = False) -> np.ndarray:
    """Returns a value as an array of numbers. Masks become 0 and 1."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"act was given {name} of lists of different lengths") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"act was given {name} of type {array.dtype}, but the policy needs numbers")
    if is_mask:
        return (array != 0).astype(np.uint8)
    if not np.issubdtype(space.dtype, np.floating):
        if array.dtype.kind == "f":
            raise ValueError(
                f"act was given {name} of {array.dtype}, but the policy was trained with {space.dtype}: "
                "give the integers that the environment returns"
            )
        if (array.astype(space.dtype) != array).any():
            raise ValueError(f"act was given {name} with numbers that {space.dtype} does not hold")
    return array


def _batched(name: str, array: np.ndarray, shape: tuple[int, ...], batch: int | None) -> np.ndarray:
    """Returns an array as ``[B, *shape]``. ``batch``: B, or None for a single observation."""
    if array.shape == (shape if batch is None else (batch, *shape)):
        return array[np.newaxis] if batch is None else array
    needed = f"{shape}, or [{', '.join(map(str, ('B', *shape)))}] for a batch"
    if batch is not None and array.shape[1:] == shape:
        needed = f"{(batch, *shape)}, as many rows as the other parts"
    raise ValueError(f"act was given {name} of shape {array.shape}, but the policy needs {needed}")


def _check_masks(space: PackedSpace, rows: np.ndarray) -> None:
    """Raises ValueError for a mask in which an action, or a factor of one, has no valid choice."""
    mask = space.mask
    if mask is None:
        return
    empty = empty_factors(space, rows)
    if empty.any():
        row, factor = np.argwhere(empty)[0].tolist()
        which = "no action is valid" if len(space.choices) == 1 else f"factor {factor} has no valid choice"
        where = f" in row {row}" if len(rows) > 1 else ""
        raise ValueError(
            f"act was given {_name(mask)} in which {which}{where}; for an observation that ends an "
            "episode give a mask of ones, and ignore the action"
        )


def _name(part: Part) -> str:
    """Names a part as the object of a sentence."""
    if part.path:
        return f"the part {dotted(part.path)!r}"
    return f"an {MASK_KEY}" if part.is_mask else "observations"
