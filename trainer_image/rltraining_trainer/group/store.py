"""What torch's process groups find each other through: keys and values, kept by learner 0's rendezvous."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch.distributed.distributed_c10d import Store

from rltraining_trainer.transport import Peer


class RendezvousStore(Store):
    """The rendezvous's store during one generation, as seen by one learner. A key is written once.

    torch calls the methods from C++, and passes what they raise through: TransportError.
    """

    def __init__(self, first: Peer, number: int, seconds: float) -> None:
        """
        Args:
            first: learner 0.
            number: the generation's.
            seconds: how long to wait for a value.
        """
        super().__init__()
        self._first = first
        self._number = number
        self._seconds = seconds
        self._known: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:  # type: ignore[override]
        content = torch.frombuffer(bytearray(value), dtype=torch.uint8)
        self._ask("store_set", key, value=content)

    def get(self, key: str) -> bytes:
        if key not in self._known:
            self._known[key] = self._ask("store_get", key).numpy().tobytes()
        return self._known[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self.get(key)

    def _ask(self, service: str, key: str, **fields: Any) -> Any:
        message = {"number": self._number, "key": key, **fields}
        return self._first.call(service, message, timeout=self._seconds).result()
