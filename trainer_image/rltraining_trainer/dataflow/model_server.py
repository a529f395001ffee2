"""Serves the newest parameters with their version."""

from __future__ import annotations

import threading
from typing import NamedTuple, TypedDict

from torch import Tensor

from rltraining_trainer.dataflow.flat import Rounded, frozen_positions, round_flat

FIRST_VERSION = 1
"""Version of the initial parameters."""
WANTS_NONE = -1
"""Version in requests for the current version without its parameters."""


class Snapshot(NamedTuple):
    """Parameters with their version."""

    version: int
    parameters: Tensor | None
    """``[N]``. Do not modify them. None: none are published yet."""


class Answer(NamedTuple):
    """Parameters as samplers receive them, with their version."""

    version: int
    parameters: Tensor | Rounded | None
    """``[N]``. Do not modify them. None: the sampler has them, or none are published yet."""


class ModelState(TypedDict):
    """The state of a ModelServer in checkpoints. The learner saves the parameters."""

    version: int
    pulls: int
    bytes_sent: int


class ModelServer:
    """Versioned snapshots of the flat parameters, published by the learner. Thread-safe.

    Versions grow, also over a restart that restores the state. However, a restarted learner may
    continue from an earlier version than a sampler has, and assign the same version to other
    parameters. A sampler therefore discards its version when it redials.

    Args:
        rounds: samplers receive vectors of `flatten_parameters` in bfloat16. Other tensors are never rounded.
    """

    def __init__(self, *, rounds: bool = False) -> None:
        self._lock = threading.Lock()
        self._rounds = rounds
        self._exact: Tensor | None = None  # positions that are not rounded. None: nothing is rounded
        self._rounded: tuple[Tensor, Rounded] | None = None  # the last rounded snapshot
        self._version = 0
        self._snapshot: Tensor | None = None
        self._wanted = False  # a sampler has requested parameters
        self._pulls = 0
        self._bytes_sent = 0

    @property
    def version(self) -> int:
        """The newest version, or 0 if there is none."""
        return self._version

    @property
    def published(self) -> bool:
        """Whether there are parameters to send, also after a restart."""
        return self._snapshot is not None

    @property
    def unpublished(self) -> bool:
        """Whether a sampler has requested parameters, and none are published yet."""
        return self._wanted and not self.published

    def check_published(self, call: str) -> None:
        """Raises RuntimeError if samplers wait for the first parameters. ``call``: waits for data of these samplers."""
        if self.unpublished:
            raise RuntimeError(
                f"call run.publish(parameters) before {call}: world.start(parameters) waits for it in samplers"
            )

    @property
    def newest(self) -> Snapshot:
        """The newest parameters."""
        with self._lock:
            return Snapshot(self._version, self._snapshot)

    @property
    def pulls(self) -> int:
        """Number of requests, including those that were answered without parameters."""
        return self._pulls

    @property
    def bytes_sent(self) -> int:
        """Bytes of parameters in all answers."""
        return self._bytes_sent

    def publish(self, flat: Tensor) -> int:
        """Publishes a copy of `flat` ``[N]`` from any device, and returns its version."""
        # Always copy to a new tensor, because the previous one may still be being sent.
        snapshot = flat.detach().to("cpu", copy=True)
        with self._lock:
            if self._rounds:
                self._exact = frozen_positions(flat)
            self._version += 1
            self._snapshot = snapshot
            return self._version

    def with_version(self, flat: Tensor) -> Snapshot:
        """Returns a copy of other parameters ``[N]`` with a new version. The newest parameters get a new version, too."""
        with self._lock:
            self._version += 2
            return Snapshot(self._version - 1, flat.clone())

    def newer_than(self, version: int, snapshot: Snapshot | None = None) -> Answer:
        """Returns the newest parameters, or the given ``snapshot``, for a sampler with this ``version``.

        The parameters are None if `version` is their version or WANTS_NONE, or if none are published yet.
        """
        with self._lock:
            self._pulls += 1
            self._wanted |= version != WANTS_NONE
            served, parameters = snapshot or (self._version, self._snapshot)
            if parameters is None or version in (served, WANTS_NONE):
                return Answer(served, None)
            sent = self._round(parameters)
            self._bytes_sent += sum(part.nbytes for part in ((sent,) if isinstance(sent, Tensor) else sent))
            return Answer(served, sent)

    def _round(self, parameters: Tensor) -> Tensor | Rounded:
        """Rounds parameters, once for all samplers. Called with the lock held."""
        if self._exact is None:
            return parameters
        if self._rounded is None or self._rounded[0] is not parameters:
            self._rounded = parameters, round_flat(parameters, self._exact)
        return self._rounded[1]

    def get_state(self) -> ModelState:
        with self._lock:
            return {"version": self._version, "pulls": self._pulls, "bytes_sent": self._bytes_sent}

    def set_state(self, state: ModelState) -> None:
        """Continues after `state`, or after the newest version if that is later.

        Therefore no version is assigned twice. Parameters are missing until the next `publish`.
        """
        with self._lock:
            self._version = max(self._version, state["version"])
            self._pulls = state["pulls"]
            self._bytes_sent = state["bytes_sent"]
            self._snapshot = None
