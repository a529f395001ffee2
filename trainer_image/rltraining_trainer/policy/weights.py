"""Reads the weights of untrusted policies without executing code."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rltraining_trainer.errors import BadConfiguration

SPARE_VALUES = 1 << 20
"""Values that a network may allocate in addition to a multiple of its weights."""
TIMES_ALLOCATED = 4
"""Multiple of the weights that may be allocated, since parts of a network are built twice."""
_ALLOCATORS = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)


class WeightsError(ValueError):
    """The file contains no valid weights. The message is a clause."""


def read_weights(content: bytes) -> dict[str, Tensor]:
    """Returns the state dict in a file of `torch.save`, on the CPU.

    Raises WeightsError for other content, including compressed tensors, which could be a thousand
    times as large as the file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
        weights = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True) if stored else None
    except Exception as error:  # an invalid file can cause any exception
        raise WeightsError("is damaged") from error
    if not stored:
        raise WeightsError("is damaged: its tensors are compressed")
    if not isinstance(weights, dict) or not all(map(_is_weight, weights.items())):
        raise WeightsError("contains no weights of a policy")
    if sum(tensor.nbytes for tensor in weights.values()) > len(content):
        raise WeightsError("holds tensors that are larger than the file")
    return weights


class _Limit(TorchFunctionMode):
    """Counts the values of created tensors, and raises BadConfiguration beyond a limit."""

    def __init__(self, most: int, problem: str) -> None:
        super().__init__()
        self._left, self._problem = most, problem

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func in _ALLOCATORS:
            self._left -= _values(args, kwargs or {})
            if self._left < 0:
                raise BadConfiguration(self._problem)
        return func(*args, **(kwargs or {}))


def as_large_as(weights: dict[str, Tensor], origin: str) -> AbstractContextManager[Any]:
    """Returns a context in which only networks of about the size of these weights can be built.

    A larger network raises BadConfiguration before it takes memory and time.
    """
    most = TIMES_ALLOCATED * sum(tensor.numel() for tensor in weights.values()) + SPARE_VALUES
    return _Limit(most, f"the weights do not fit the network of {origin}: it has many more parameters")


def _is_weight(item: tuple[Any, Any]) -> bool:
    name, tensor = item
    return isinstance(name, str) and isinstance(tensor, Tensor) and tensor.layout == torch.strided


def _values(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """Returns the number of values of ``torch.empty(*args)``."""
    sizes = kwargs.get("size", args[0] if args and isinstance(args[0], Sequence) else args)
    return math.prod(size for size in sizes if isinstance(size, int))
