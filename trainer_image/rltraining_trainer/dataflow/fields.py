"""Validation of the fields of received messages."""

from __future__ import annotations

from typing import Any

from rltraining_trainer.transport import Payload


def field(payload: Payload, name: str, kind: type) -> Any:
    """Returns ``payload[name]``. Raises TypeError with the field's name if it is not a ``kind``."""
    value = optional_field(payload, name, kind)
    if value is None:
        raise TypeError(f"the field {name} must be a {kind.__name__}, not NoneType")
    return value


def optional_field(payload: Payload, name: str, kind: type) -> Any:
    """Like ``field``. Returns None if the field is missing or None."""
    value = payload.get(name) if isinstance(payload, dict) else None
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"the field {name} must be a {kind.__name__}, not {type(value).__name__}")
    return value
