"""What a handler is sent may be anything: each field is looked at before it is used."""

from __future__ import annotations

from typing import Any

from rltraining_trainer.transport import Payload


def field(payload: Payload, name: str, kind: type) -> Any:
    """``payload[name]``. Raises TypeError, naming the field, unless it is there and of this kind."""
    value = payload.get(name) if isinstance(payload, dict) else None
    if not isinstance(value, kind):
        raise TypeError(f"the field {name} must be a {kind.__name__}, not {type(value).__name__}")
    return value
