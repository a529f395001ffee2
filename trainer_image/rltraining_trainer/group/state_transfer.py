"""Sends the state of one member to all others: first its layout, then its tensors."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from rltraining_trainer.group.collectives import Collectives
from rltraining_trainer.transport.payload import pack, unpack


def send_state(collectives: Collectives, source: int, state: dict[str, Any]) -> None:
    """Sends ``state``, tensors in plain values, from this member, ``source``, to all others.

    Raises:
        GroupChanged: A member was lost.
        TypeError: `state` contains something else.
    """
    pickle, tensors = pack(_on_cpu(state))
    tensors = [torch.frombuffer(bytearray(pickle), dtype=torch.uint8), *(t.contiguous() for t in tensors)]
    # Send the layout, preceded by its size.
    layout = json.dumps([[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in tensors]).encode()
    collectives.broadcast(torch.tensor([len(layout)]), source)
    collectives.broadcast(torch.frombuffer(bytearray(layout), dtype=torch.uint8), source)
    # Send the tensors.
    for tensor in tensors:
        collectives.broadcast(tensor, source)


def receive_state(collectives: Collectives, source: int) -> dict[str, Any]:
    """Returns the state that ``source`` sends, with new tensors on the CPU. Raises GroupChanged."""
    # Receive the layout, preceded by its size.
    size = torch.zeros(1, dtype=torch.int64)
    collectives.broadcast(size, source)
    text = torch.empty(int(size.item()), dtype=torch.uint8)
    collectives.broadcast(text, source)
    # Receive the tensors.
    tensors = [
        torch.empty(shape, dtype=getattr(torch, dtype)) for dtype, shape in json.loads(text.numpy().tobytes())
    ]
    for tensor in tensors:
        collectives.broadcast(tensor, source)
    return unpack(tensors[0].numpy().tobytes(), tensors[1:])


def _on_cpu(value: Any) -> Any:
    """Returns a copy of the nested value with all tensors on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_on_cpu(item) for item in value)
    return value
