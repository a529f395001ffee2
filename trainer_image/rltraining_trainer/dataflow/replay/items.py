"""Conversion of inserted items, numpy arrays or tensors, to the columns of the replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.dataflow.replay.storage import Column


def infer_columns(items: Mapping[str, Any]) -> dict[str, Column]:
    """Returns the columns of a batch of items, each ``[K, ...]``.

    Arrays and tensors keep their type. Python numbers become int64, float32 or bool.

    Raises:
        ValueError: There is no column, or a column is not an array of numbers with a first axis.
    """
    if not items:
        raise ValueError("an item needs at least one column")
    columns = {}
    for name, rows in items.items():
        tensor = _tensor(name, rows)
        if tensor.ndim == 0:
            raise ValueError(f"{name} must be [K, ...], one row per item, not a single number")
        columns[name] = Column(tuple(tensor.shape[1:]), tensor.dtype)
    return columns


def to_tensors(items: Mapping[str, Any], columns: Mapping[str, Column]) -> dict[str, Tensor]:
    """Returns ``items`` ``[K, ...]`` as CPU tensors of the types of ``columns``. Shares memory if
    possible.

    Types are converted within their kind, such as float64 to float32 or int32 to int64. The buffer
    checks shapes and names.

    Raises:
        ValueError: The numbers are of another kind, for example floats for integers.
    """
    tensors = {}
    for name, rows in items.items():
        tensor, column = _tensor(name, rows), columns.get(name)
        if column is not None and tensor.dtype != column.dtype:
            if not torch.can_cast(tensor.dtype, column.dtype):
                raise ValueError(f"{name} holds {column.dtype}: it cannot hold {tensor.dtype}")
            tensor = tensor.to(column.dtype)
        tensors[name] = tensor
    return tensors


def _tensor(name: str, rows: Any) -> Tensor:
    if isinstance(rows, Tensor):
        return rows.detach().cpu()
    array = np.asarray(rows)
    if not isinstance(rows, np.ndarray | np.generic) and array.dtype == np.float64:
        array = array.astype(np.float32)
    if not (array.flags.c_contiguous and array.flags.writeable):
        array = array.copy()
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise ValueError(f"{name} must be numbers, not {array.dtype}") from None
