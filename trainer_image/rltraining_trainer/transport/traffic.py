"""Counts the bytes of messages."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from torch import Tensor


class Traffic:
    """The bytes of all messages of a process, without what the connection adds. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._received = self._sent = 0

    @property
    def received(self) -> int:
        """Bytes of calls and answers that this process has received."""
        return self._received

    @property
    def sent(self) -> int:
        """Bytes of calls and answers that this process has sent."""
        return self._sent

    def on_received(self, data: bytes, tensors: Iterable[Tensor]) -> None:
        """Counts a message: a pickle and its tensors."""
        count = _bytes(data, tensors)
        with self._lock:
            self._received += count

    def on_sent(self, data: bytes, tensors: Iterable[Tensor]) -> None:
        """Counts a message: a pickle and its tensors."""
        count = _bytes(data, tensors)
        with self._lock:
            self._sent += count


def _bytes(data: bytes, tensors: Iterable[Tensor]) -> int:
    return len(data) + sum(tensor.nbytes for tensor in tensors)
