"""Saves and loads states as checkpoints do."""

from __future__ import annotations

import io
from typing import Any

import torch
from rltraining_trainer.checkpoint import snapshot


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state as loaded from a file."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state as loaded from a checkpoint."""
    return through_a_file(snapshot(state))


def restore(into: Any, source: Any) -> None:
    """Spoils the parameters of `into` and restores the state of `source` from a file."""
    state = stored(source.get_state())
    with torch.no_grad():
        into.parameters.normal_()
    into.set_state(state)
