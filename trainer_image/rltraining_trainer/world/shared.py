"""Named values that a member shares with all others."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from torch import Tensor

from rltraining_trainer.transport import Payload


class Shared(NamedTuple):
    """A value that a member shares, at the time of the request."""

    version: int
    """1 for the first value, 2 for the second, and so on. Starts at 1 again if the member restarts."""
    value: Any


class SharedValues:
    """The values of this member. Thread-safe."""

    def __init__(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._lock = threading.Lock()
        self._values: dict[str, Shared] = {}

    def share(self, name: str, value: Payload) -> int:
        """Stores a copy of ``value`` and returns its version.

        Raises TypeError if ``value`` contains anything but tensors and plain values.
        """
        # Copy each time: an answer with the previous value may still be in transit.
        copy = copied(value)
        with self._lock:
            last = self._values.get(name)
            version = last.version + 1 if last is not None else 1
            self._values[name] = Shared(version, copy)
        return version

    def answer(self, sender: str, payload: Any) -> Payload:
        """Answers the service with the incarnation, version and value of ``name``.

        The value is None if the caller has this version. The version is 0 if there is no value yet.
        """
        name, incarnation, version = payload
        with self._lock:
            newest = self._values.get(name)
        if newest is None:
            return (self._incarnation, 0, None)
        known = incarnation == self._incarnation and version == newest.version
        return (self._incarnation, newest.version, None if known else newest.value)


def copied(value: Any) -> Any:
    """Returns a deep copy with all tensors on the CPU.

    Raises TypeError for types that cannot be sent.
    """
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
