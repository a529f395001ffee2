"""What a checkpoint may hold: nested dicts, lists and tuples of tensors and plain Python values.

Nothing else, so that it can be read back with ``weights_only=True``: a checkpoint is data, never code.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.checkpoint.errors import CheckpointError

_PLAIN = (type(None), bool, int, float, str)


def snapshot(state: dict[str, Any]) -> dict[str, Any]:
    """A deep copy on the CPU that later training steps cannot change.

    Raises CheckpointError, with the path of the value, for anything but tensors and plain Python values.
    """
    copy: dict[str, Any] = _copy(state, "state")
    return copy


def _copy(value: Any, path: str) -> Any:
    kind = type(value)
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):  # an OrderedDict from Module.state_dict() becomes a plain dict
        for key in value:
            if type(key) not in (str, int):
                raise CheckpointError(f"{path} has the key {key!r}; keys must be strings or integers")
        return {key: _copy(item, f"{path}.{key}") for key, item in value.items()}
    if kind in (list, tuple):
        return kind(_copy(item, f"{path}[{i}]") for i, item in enumerate(value))
    if kind in _PLAIN:  # exact types: a numpy.float64 is a float, but cannot be read back
        return value
    raise CheckpointError(
        f"{path} is a {kind.__module__}.{kind.__qualname__}; "
        "a checkpoint holds only tensors, None, bool, int, float, str, list, tuple and dict"
    )


def rng_state() -> dict[str, Any]:
    """The state of this process's global random generators: torch (CPU, and CUDA in use), numpy, Python."""
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
    """Continue the random streams that ``rng_state`` returned.

    CUDA streams are restored as far as this machine has devices: a run may move to a smaller machine.
    """
    torch.set_rng_state(state["torch"])
    for device, cuda in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
        torch.cuda.set_rng_state(cuda, device)
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))
    mersenne = state["numpy"]["state"]
    key = mersenne["key"].numpy().astype(np.uint32)
    np.random.set_state(state["numpy"] | {"state": mersenne | {"key": key}})
