"""Named values that a member shares with all others."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from torch import Tensor

from rltraining_trainer.transport import Payload


class Shared(NamedTuple):
    """A value that a member shares, as it was when it was asked."""

    version: int
    """1 for the first, one more with each later one; from 1 again when the member has died and come back."""
    value: Any


class SharedValues:
    """The values of this member. Any thread may do anything."""

    def __init__(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._lock = threading.Lock()
        self._values: dict[str, Shared] = {}

    def share(self, name: str, value: Payload) -> int:
        """Take a copy of ``value``; returns its version. Raises TypeError if it holds anything but tensors and plain values."""
        copy = copied(value)  # always a new one: the answer with the last may still be on its way
        with self._lock:
            last = self._values.get(name)
            version = last.version + 1 if last is not None else 1
            self._values[name] = Shared(version, copy)
        return version

    def answer(self, sender: str, payload: Any) -> Payload:
        """The service: what ``name`` is, without the value if the asker has it; version 0 if there is nothing yet."""
        name, incarnation, version = payload
        with self._lock:
            newest = self._values.get(name)
        if newest is None:
            return (self._incarnation, 0, None)
        known = incarnation == self._incarnation and version == newest.version
        return (self._incarnation, newest.version, None if known else newest.value)


def copied(value: Any) -> Any:
    """A copy that later steps cannot change, with all tensors on the CPU. Raises TypeError, naming what cannot be sent."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {copied(key): copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    if isinstance(value, tuple):
        return tuple(copied(item) for item in value)
    if type(value) in (str, int, float, bool, type(None)):
        return value
    raise TypeError(f"a {type(value).__qualname__} cannot be sent: use tensors and plain values")
