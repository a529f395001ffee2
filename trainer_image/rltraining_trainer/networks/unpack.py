"""Unpacks observations inside a network and applies their masks of valid actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rltraining_trainer.environments.packed_space import NUMBER_BYTES, PackedSpace, Part

MASKED = -1e9
"""Logit or value of an invalid action. With -infinity the entropy would be NaN."""

Packed = Tensor | Sequence[Tensor]
"""Rows ``[N, P]``, or unpacked parts ``[N, ...]`` in the order of ``PackedSpace.parts``."""


class Unpack(nn.Module):
    """Unpacks observations into parts ``[N, *shape]`` of uint8 or float32, as they are stored."""

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
    """Splits rows ``[N, P]`` into numbers ``[N, F]`` float32 and bytes ``[N, M]`` uint8."""

    def __init__(self, space: PackedSpace) -> None:
        super().__init__()
        self._cut = NUMBER_BYTES * space.numbers if space.has_bytes else None

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        if self._cut is None:
            return rows, rows[:, :0]
        return rows[:, : self._cut].contiguous().view(torch.float32), rows[:, self._cut :]


def take(part: Part, numbers: Tensor, data: Tensor) -> Tensor:
    """Returns ``part`` ``[N, *shape]`` from the numbers and bytes of rows."""
    source = data if part.is_bytes else numbers
    return (
        source[:, part.start : part.start + part.size]
        .unflatten(1, part.shape or (1,))
        .reshape(-1, *part.shape)
    )


class Structure(nn.Module):
    """Unpacks observations into the structure of the original space, for users' networks.

    Parts ``[N, *shape]`` are float32 or uint8, discrete ones int64.
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
    """Sets the logits or values of invalid actions to ``MASKED``.

    Args:
        space: Space of the packed observations, which contain the mask.
        logits: Number of logits or values, the first numbers of the output.
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
        """Returns ``output`` ``[N, P]`` with invalid actions masked."""
        packed = isinstance(observation, Tensor)
        mask = take(self._part, *self._split(observation)) if packed else observation[self._index]
        invalid = mask.flatten(1) == 0
        others = output.shape[-1] - self._logits
        return output.masked_fill(F.pad(invalid, (0, others)), MASKED)


def _put(built: Any, path: tuple[str | int, ...], value: Tensor) -> Any:
    """Inserts ``value`` at ``path`` into nested dicts (str keys) and tuples (indices).

    The indices of a tuple must be inserted in ascending order. Returns the structure.
    """
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
