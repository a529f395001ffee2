"""Validation of the fields of received messages."""

from __future__ import annotations

from typing import Any

from rltraining_trainer.transport import Payload


def field(payload: Payload, name: str, kind: type) -> Any:
    """Returns ``payload[name]``. Raises TypeError with the field's name if it is not a ``kind``."""
    value = payload.get(name) if isinstance(payload, dict) else None
    if value is None or not isinstance(value, kind):
        raise TypeError(f"the field {name} must be a {kind.__name__}, not {type(value).__name__}")
    return value
