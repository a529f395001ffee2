"""The newest parameters with their version, for everybody who asks."""

from __future__ import annotations

import threading
from typing import TypedDict

from torch import Tensor

FIRST_VERSION = 1
"""Version of the parameters that training starts with."""
WANTS_NONE = -1
"""The version of those who want no parameters, only to know of them."""


class ModelState(TypedDict):
    """What a checkpoint keeps of a ModelServer. The parameters themselves are the learner's to keep."""

    version: int
    pulls: int
    bytes_sent: int


class ModelServer:
    """Versioned snapshots of the flat parameters. The learner publishes, RPC threads read; any thread may do
    both.

    Versions only grow, also over a restart that restores the state. A restart may however return to an
    *earlier* one than a sampler has, and count up again to other parameters: a sampler forgets its version
    when it dials anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = 0
        self._snapshot: Tensor | None = None
        self._pulls = 0
        self._bytes_sent = 0

    @property
    def version(self) -> int:
        """The newest version; 0 before the first."""
        return self._version

    @property
    def pulls(self) -> int:
        """How often somebody asked, whether parameters moved or not."""
        return self._pulls

    @property
    def bytes_sent(self) -> int:
        """Bytes of parameters handed out."""
        return self._bytes_sent

    def publish(self, flat: Tensor) -> int:
        """Take a copy of `flat` [N], of any device, as the newest parameters; returns its version."""
        # Always a new tensor: the answer with the last one may still be on its way, and would be torn.
        snapshot = flat.detach().to("cpu", copy=True)
        with self._lock:
            self._version += 1
            self._snapshot = snapshot
            return self._version

    def newer_than(self, version: int) -> tuple[int, Tensor | None]:
        """The current version and its parameters [N], which are shared: read them only.

        None instead of the parameters if `version` is the current one or WANTS_NONE, or nothing is published yet.
        """
        with self._lock:
            self._pulls += 1
            snapshot = self._snapshot if version not in (self._version, WANTS_NONE) else None
            if snapshot is not None:
                self._bytes_sent += snapshot.nbytes
            return self._version, snapshot

    def get_state(self) -> ModelState:
        with self._lock:
            return {"version": self._version, "pulls": self._pulls, "bytes_sent": self._bytes_sent}

    def set_state(self, state: ModelState) -> None:
        """Continue after `state`, or after the newest version that is known here already: no version is of two
        parameters. Nothing is handed out until the next is published.
        """
        with self._lock:
            self._version = max(self._version, state["version"])
            self._pulls = state["pulls"]
            self._bytes_sent = state["bytes_sent"]
            self._snapshot = None
