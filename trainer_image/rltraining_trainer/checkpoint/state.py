"""The content of checkpoints: nested dicts, lists and tuples of tensors and plain Python values.

Other types are rejected, so that checkpoints can be read with ``weights_only=True``, which executes
no code.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.checkpoint.errors import UnsupportedValue

_PLAIN = (type(None), bool, int, float, str)


def snapshot(state: dict[str, Any]) -> dict[str, Any]:
    """Returns a deep copy on the CPU.

    Raises UnsupportedValue with the path of the value if a value is neither a tensor nor plain.
    """
    copy: dict[str, Any] = _copy(state, "state")
    return copy


def _copy(value: Any, path: str) -> Any:
    kind = type(value)
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    # An OrderedDict of Module.state_dict() becomes a plain dict.
    if isinstance(value, dict):
        for key in value:
            if type(key) not in (str, int):
                raise UnsupportedValue(f"{path} has the key {key!r}; keys must be strings or integers")
        return {key: _copy(item, f"{path}.{key}") for key, item in value.items()}
    if kind in (list, tuple):
        return kind(_copy(item, f"{path}[{i}]") for i, item in enumerate(value))
    # Compare types exactly: a numpy.float64 is a float, but cannot be read.
    if kind in _PLAIN:
        return value
    raise UnsupportedValue(
        f"{path} is a {kind.__module__}.{kind.__qualname__}; "
        "a checkpoint holds only tensors, None, bool, int, float, str, list, tuple and dict"
    )


def rng_state() -> dict[str, Any]:
    """Returns the state of the global random generators of torch, numpy and Python."""
    version, internal, gauss_next = random.getstate()
    numpy = np.random.get_state(legacy=False)
    assert isinstance(numpy, dict)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "python": [version, list(internal), gauss_next],
        "numpy": numpy
        | {"state": {**numpy["state"], "key": torch.from_numpy(numpy["state"]["key"].astype(np.int64))}},
    }


def restore_rng(state: dict[str, Any]) -> None:
    """Restores the state of the random generators.

    The states of CUDA devices that this machine lacks are ignored, since it may be smaller.
    """
    torch.set_rng_state(state["torch"])
    for device, cuda in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
        torch.cuda.set_rng_state(cuda, device)
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))
    mersenne = state["numpy"]["state"]
    key = mersenne["key"].numpy().astype(np.uint32)
    np.random.set_state(state["numpy"] | {"state": mersenne | {"key": key}})
