"""One shard of the replay, which serves the learners."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.dataflow.fields import field, optional_field
from rltraining_trainer.dataflow.replay.buffer import ReplayBuffer, ReplayCounts
from rltraining_trainer.transport import Call, DeferredReply, Handler, Payload
from rltraining_trainer.transport.calls import ERROR, OK

SAMPLE_FIELDS = ("slots", "versions", "probabilities", "ages")
"""Rows of the tensor, float64 ``[4, k]``, that is sent with k items. One tensor is sent faster than
four, and float64 represents integers exactly up to 2^53."""
UPDATE_FIELDS = ("slots", "versions", "priorities")
"""Rows of the tensor, float64 ``[3, k]``, that updates k priorities."""


class ReplayShard:
    """A ReplayBuffer with services for learners and samplers. Thread-safe.

    All services reply with at least ``{"mass", "counts", "updated": [applied, stale]}``: the
    priority sum, the counts and the result of the update. If the payload has ``"smallest": True``,
    the reply also has ``smallest``, the `min_priority` of the buffer. Services raise TypeError with
    the name of the field if the payload is invalid.

    sample: ``{"count": int, "update": Tensor [3, k] | None}``. Applies the update, then samples.
        The reply adds ``items``, columns ``[count, ...]``, and ``drawn``, see SAMPLE_FIELDS. Both
        are empty if there is nothing to sample.
    update: ``{"update": Tensor [3, k]}``, see UPDATE_FIELDS.
    stats: No fields.
    insert: ``{"incarnation": str, "sequence": int, "items": dict, "priorities": Tensor or None}``, for
        samplers without a shard. Repeated sequence numbers of a sender are ignored. The reply is
        deferred while the shard has reached its limit, which blocks the sender.
    """

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._buffer = buffer
        self._lock = threading.Lock()
        self.incarnation = secrets.token_hex(8)
        """Distinguishes restarts of the shard."""
        self._resumed = buffer.counts
        self._limit: int | None = None
        self._waiting: list[DeferredReply] = []
        # The incarnation and the last sequence number of each sender.
        self._seen: dict[str, tuple[str, int]] = {}

    @property
    def services(self) -> Mapping[str, Handler]:
        return {"sample": self.sample, "update": self.update, "stats": self.stats, "insert": self.insert}

    @property
    def counts(self) -> ReplayCounts:
        with self._lock:
            return self._buffer.counts

    @property
    def has_room(self) -> bool:
        """Whether the limit permits to add now. The added items may exceed it."""
        with self._lock:
            return self._has_room()

    def add(self, items: Mapping[str, Tensor], priorities: Tensor | None) -> None:
        """Adds items, columns ``[k, ...]``, with raw priorities ``[k]``. None: the largest priority so far."""
        with self._lock:
            self._buffer.add(items, priorities)

    def set_limit(self, limit: int | None) -> None:
        """Sets the maximum number of insertions. None: no limit."""
        with self._lock:
            self._limit = limit
            released = self._waiting if self._has_room() else []
            self._waiting = [] if released else self._waiting
            state = self._state(None)
        for reply in released:
            reply.resolve(state)

    def describe(self) -> dict[str, Any]:
        """Returns the arguments of DistributedReplay.announce that describe the shard."""
        with self._lock:
            return {
                "incarnation": self.incarnation,
                "mass": self._buffer.priority_sum,
                "counts": list(self._buffer.counts),
                "resumed": list(self._resumed),
            }

    def sample(self, sender: str, payload: Payload) -> Payload:
        count, update = field(payload, "count", int), _update(payload, required=False)
        with self._lock:
            updated = self._apply(update)
            items, drawn = self._sample(count)
            return {**self._state(payload, updated), "items": items, "drawn": drawn}

    def update(self, sender: str, payload: Payload) -> Payload:
        update = _update(payload, required=True)
        with self._lock:
            return self._state(payload, self._apply(update))

    def stats(self, sender: str, payload: Payload) -> Payload:
        with self._lock:
            return self._state(payload)

    def insert(self, sender: str, payload: Payload) -> Payload | DeferredReply:
        source = (field(payload, "incarnation", str), field(payload, "sequence", int))
        items, priorities = field(payload, "items", dict), optional_field(payload, "priorities", Tensor)
        for name in items:
            field(items, name, Tensor)
        with self._lock:
            # Ignore items that the sender has sent before.
            incarnation, last = self._seen.get(sender, ("", 0))
            if incarnation != source[0] or last < source[1]:
                self._buffer.add(items, priorities)
                self._seen[sender] = source
            # Reply now, or when the limit permits more insertions.
            if self._has_room():
                return self._state(payload)
            reply = DeferredReply()
            self._waiting.append(reply)
            return reply

    def get_state(self) -> dict[str, Any]:
        with self._lock:
            return {"buffer": self._buffer.get_state(), "seen": dict(self._seen)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the items and counts of a lost process."""
        with self._lock:
            self._buffer.set_state(state["buffer"])
            self._seen = {sender: (source[0], source[1]) for sender, source in state["seen"].items()}
            self._resumed = self._buffer.counts

    def check_valid(self) -> None:
        """Raises AssertionError with the violated invariant."""
        with self._lock:
            self._buffer.check_valid()
            assert not (self._waiting and self._has_room()), "a sender is blocked below the limit"

    def _has_room(self) -> bool:
        return self._limit is None or self._buffer.counts.inserted < self._limit

    def _state(self, asked: Payload, updated: tuple[int, int] = (0, 0)) -> dict[str, Any]:
        state = {
            "mass": self._buffer.priority_sum,
            "counts": list(self._buffer.counts),
            "updated": list(updated),
        }
        if isinstance(asked, dict) and asked.get("smallest") is True:
            state["smallest"] = self._buffer.min_priority
        return state

    def _apply(self, update: Tensor | None) -> tuple[int, int]:
        if update is None:
            return (0, 0)
        slots, versions, priorities = update.numpy()
        at, version = (torch.from_numpy(row.astype(np.int64)) for row in (slots, versions))
        return self._buffer.update(at, version, torch.from_numpy(priorities))

    def _sample(self, count: int) -> tuple[dict[str, Tensor], Tensor]:
        if not self._buffer.priority_sum > 0:
            return {}, torch.empty(len(SAMPLE_FIELDS), 0, dtype=torch.float64)
        sample = self._buffer.sample(count)
        drawn = np.empty((len(SAMPLE_FIELDS), count))
        for row, name in zip(drawn, SAMPLE_FIELDS, strict=True):
            row[:] = getattr(sample, name).numpy()
        return sample.items, torch.from_numpy(drawn)


class ShardPeer(Protocol):
    """Calls a shard: the Peer of the transport, or a LocalPeer."""

    def call(self, service: str, payload: Payload, *, timeout: float | None = None) -> Call: ...


class LocalPeer:
    """Calls a shard in the same process without RPC."""

    def __init__(self, shard: ReplayShard) -> None:
        self._services = shard.services

    def call(self, service: str, payload: Payload, *, timeout: float | None = None) -> Call:
        """Calls the service immediately. `result` raises the same errors as that of an RPC."""
        call = Call("this process", 0.0)
        try:
            answer = self._services[service]("", payload)
            if isinstance(answer, DeferredReply):
                answer.attach(call.settle)
            else:
                call.settle((OK, answer))
        except Exception as error:
            call.settle((ERROR, f"{service}: {type(error).__name__}: {error}"))
        return call


def _update(payload: Payload, *, required: bool) -> Tensor | None:
    if not required and isinstance(payload, dict) and payload.get("update") is None:
        return None
    update = field(payload, "update", Tensor)
    if update.dtype != torch.float64 or update.ndim != 2 or len(update) != len(UPDATE_FIELDS):
        raise TypeError(f"the field update must be float64 [3, k], not {update.dtype} {list(update.shape)}")
    return update
