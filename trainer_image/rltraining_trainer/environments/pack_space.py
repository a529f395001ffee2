"""Chooses how the observations of an environment are packed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
from gymnasium import spaces

from rltraining_trainer.environments.nested_spaces import (
    LeafSpace,
    Path,
    discrete_choices,
    dotted,
    items_of,
    shown,
)
from rltraining_trainer.environments.packed_space import MASK_KEY, PackedSpace
from rltraining_trainer.errors import BadConfiguration


def pack_space(
    space: spaces.Space, action_space: spaces.Space, *, mask_in_info: bool = False
) -> tuple[spaces.Space, tuple[str, ...]]:
    """Chooses how observations are packed.

    Args:
        space: Space of one observation.
        action_space: Space of one action.
        mask_in_info: Whether infos have a mask of valid actions.

    Returns:
        The packed space, or ``space`` itself for a single array without a mask, and the names of
        text parts, which are left out.

    Raises:
        BadConfiguration: No network supports a part, or the mask does not fit the actions.
    """
    choices = discrete_choices(action_space)
    composite = isinstance(space, spaces.Dict | spaces.Tuple)
    if not composite and not mask_in_info:
        return space, ()
    # Find the parts.
    kept, left_out = without_text(space)
    leaves = [*_leaves(kept)]
    if not leaves:
        raise BadConfiguration(
            f"spec.environment: observations of {shown(space)} do not contain an array of numbers"
        )
    # Find the mask.
    mask_path: Path | None = () if mask_in_info else None
    if isinstance(kept, spaces.Dict) and MASK_KEY in kept.spaces and choices:
        mask_path = (MASK_KEY,)
        size = int(np.prod(kept[MASK_KEY].shape or ()))
        if size != sum(choices):
            raise BadConfiguration(
                f"spec.environment: the part {MASK_KEY!r} of observations has {size} entries, but the actions of "
                f"{shown(action_space)} have {sum(choices)} choices; return one entry per choice"
            )
        if len(leaves) == 1:
            raise BadConfiguration(
                f"spec.environment: observations of {shown(space)} contain only the action mask; "
                "add an array that the policy can observe"
            )
    return PackedSpace(kept, leaves, choices if mask_path is not None else (), mask_path), left_out


def without_text(space: spaces.Space, path: Path = ()) -> tuple[spaces.Space, tuple[str, ...]]:
    """Returns ``space`` without its text parts, and the names of these parts."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return space, ()
    kept: dict[str | int, spaces.Space] = {}
    left_out: list[str] = []
    for key, part in items_of(space):
        # Text, and MiniGrid's MissionSpace.
        if part.dtype is not None and part.dtype.kind == "U":
            left_out.append(dotted((*path, key)))
            continue
        inner, names = without_text(part, (*path, key))
        left_out += names
        kept[key] = inner
    if not left_out:
        return space, ()
    if isinstance(space, spaces.Tuple):
        if len(kept) < len(space.spaces):
            raise BadConfiguration(
                f"spec.environment: observations have the text {left_out[0]!r} in a Tuple, whose "
                "parts cannot be left out; use a Dict or a wrapper (environment.wrappers)"
            )
        return spaces.Tuple([*kept.values()]), tuple(left_out)
    return spaces.Dict(OrderedDict((str(key), part) for key, part in kept.items())), tuple(left_out)


def _leaves(space: spaces.Space, path: Path = ()) -> Iterator[tuple[Path, LeafSpace]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in items_of(space):
            if isinstance(space, spaces.Dict) and not isinstance(key, str):
                raise BadConfiguration(
                    f"spec.environment: the keys of a Dict of observations must be text, got {key!r}; "
                    f"name the part, for example {f'part{key}'!r}"
                )
            yield from _leaves(part, (*path, key))
        return
    if isinstance(space, LeafSpace) and space.dtype is not None and space.dtype.kind in "biuf":
        yield path, space
        return
    keep = "{name: FilterObservation, kwargs: {filter_keys: [...]}}"
    raise BadConfiguration(
        f"spec.environment: the part {dotted(path)!r} of observations, {shown(space)}, is not an array of "
        f"numbers; leave it out with environment.wrappers: [{keep}]"
    )
