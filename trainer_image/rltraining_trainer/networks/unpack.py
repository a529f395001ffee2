"""From packed observations back to their parts, and masks of valid actions on a network's output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rltraining_trainer.environments.packed_space import NUMBER_BYTES, PackedSpace, Part

MASKED = -1e9
"""In place of a logit or a value of an action that is not valid. The action's probability is then exactly 0, and so is its part
of the entropy, which would be NaN with an infinity."""

Packed = Tensor | Sequence[Tensor]
"""Rows ``[N, P]``, or the parts ``[N, ...]`` themselves, in the order of ``PackedSpace.parts``."""


class Unpack(nn.Module):
    """Packed observations to their parts ``[N, *shape]``: uint8 where they are kept as bytes, else float32."""

    def __init__(self, space: PackedSpace) -> None:
        super().__init__()
        self._parts = space.parts
        self._split = Split(space)

    def forward(self, observation: Packed) -> list[Tensor]:
        if not isinstance(observation, Tensor):
            return list(observation)
        numbers, data = self._split(observation)
        return [take(part, numbers, data) for part in self._parts]


class Split(nn.Module):
    """Rows ``[N, P]`` to (numbers ``[N, F]`` float32, bytes ``[N, M]`` uint8)."""

    def __init__(self, space: PackedSpace) -> None:
        super().__init__()
        self._cut = NUMBER_BYTES * space.numbers if space.has_bytes else None

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        if self._cut is None:
            return rows, rows[:, :0]
        return rows[:, : self._cut].contiguous().view(torch.float32), rows[:, self._cut :]


def take(part: Part, numbers: Tensor, data: Tensor) -> Tensor:
    """``part``, ``[N, *shape]``, of numbers and bytes."""
    source = data if part.is_bytes else numbers
    return (
        source[:, part.start : part.start + part.size]
        .unflatten(1, part.shape or (1,))
        .reshape(-1, *part.shape)
    )


class Structure(nn.Module):
    """Packed observations in the structure of the original space: what a network of the user's takes.

    Each part is float32 or uint8 ``[N, *shape]``, discrete ones int64.
    """

    def __init__(self, space: PackedSpace) -> None:
        super().__init__()
        self._space = space
        self._unpack = Unpack(space)

    def forward(self, observation: Packed) -> Any:
        built: Any = None
        for part, value in zip(self._space.parts, self._unpack(observation), strict=True):
            if part.is_mask and not part.path:
                continue
            if not hasattr(part.space, "low"):
                value = value.long()
            built = _put(built, part.path, value)
        return built


class ActionMask(nn.Module):
    """Puts ``MASKED`` where an observation says that an action is not valid.

    Args:
        logits: how many numbers of the output are logits or values of discrete actions; they come first.
    """

    def __init__(self, space: PackedSpace, logits: int) -> None:
        super().__init__()
        mask = space.mask
        assert mask is not None
        self._part = mask
        self._index = space.parts.index(mask)
        self._split = Split(space)
        self._logits = logits

    def forward(self, output: Tensor, observation: Packed) -> Tensor:
        """``output`` ``[N, P]`` with the invalid actions masked."""
        packed = isinstance(observation, Tensor)
        mask = take(self._part, *self._split(observation)) if packed else observation[self._index]
        invalid = mask.flatten(1) == 0
        others = output.shape[-1] - self._logits
        return output.masked_fill(F.pad(invalid, (0, others)), MASKED)


def _put(built: Any, path: tuple[str | int, ...], value: Tensor) -> Any:
    """``built`` with ``value`` at ``path``: dictionaries for keys, tuples for positions, whose items come in order."""
    if not path:
        return value
    key, *rest = path
    if isinstance(key, str):
        built = {} if built is None else built
        built[key] = _put(built.get(key), tuple(rest), value)
        return built
    items = list(built or ())
    before = items.pop() if key < len(items) else None
    return (*items, _put(before, tuple(rest), value))
