"""One shard of the replay memory, served to the learners."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.replay.buffer import ReplayBuffer, ReplayCounts
from rltraining_trainer.transport import Call, DeferredReply, Handler, Payload
from rltraining_trainer.transport.calls import ERROR, OK

SAMPLE_FIELDS = ("slots", "versions", "probabilities", "ages")
"""Rows of the tensor, float64 [4, k], that goes with k drawn items. Whole numbers are exact in it up to 2^53, and one
tensor travels faster than four."""
UPDATE_FIELDS = ("slots", "versions", "priorities")
"""Rows of the tensor, float64 [3, k], that brings k new priorities."""


class ReplayShard:
    """A ReplayBuffer that its owner adds to while learners draw from it: one lock, held for one short operation.

    Services, all answered with at least ``{"mass", "counts", "updated": [applied, stale]}`` of the moment, and with the
    buffer's ``smallest`` powered priority if the payload has ``"smallest": True``:

    sample: ``{"count": int, "update": Tensor [3, k] | None}``. First the priorities that come along are taken, then items
        drawn: adds ``items`` (dict of [count, ...]) and ``drawn`` (see SAMPLE_FIELDS). While there is nothing to draw these are
        empty.
    update: ``{"update": Tensor [3, k]}``, see UPDATE_FIELDS.
    stats: nothing more.
    insert: ``{"incarnation": str, "sequence": int, "items": dict, "priorities": Tensor}``, from those who keep no shard
        of their own. A repeated sequence number of a sender is not taken twice. The answer waits while the shard is
        full by its limit, which holds the sender back.

    Each raises TypeError, naming the field, if the payload is not that.
    """

    def __init__(self, buffer: ReplayBuffer, incarnation: str = "") -> None:
        self._buffer = buffer
        self._lock = threading.Lock()
        self.incarnation = incarnation or secrets.token_hex(8)
        """Tells this start from others of the same name."""
        self._resumed = buffer.counts
        self._limit: int | None = None
        self._waiting: list[DeferredReply] = []
        self._seen: dict[str, tuple[str, int]] = {}  # per sender, its incarnation and last sequence number

    @property
    def services(self) -> Mapping[str, Handler]:
        return {"sample": self.sample, "update": self.update, "stats": self.stats, "insert": self.insert}

    @property
    def counts(self) -> ReplayCounts:
        with self._lock:
            return self._buffer.counts

    @property
    def has_room(self) -> bool:
        """Whether the limit lets its owner add now; a block may go beyond the limit that it began below."""
        with self._lock:
            return self._has_room()

    def add(self, items: Mapping[str, Tensor], priorities: Tensor) -> None:
        """Items [k, ...] with raw priorities [k]: for the process that owns the shard."""
        with self._lock:
            self._buffer.add(items, priorities)

    def set_limit(self, limit: int | None) -> None:
        """How many insertions there may have been; None: no limit. From the learner's rate limiter."""
        with self._lock:
            self._limit = limit
            released = self._waiting if self._has_room() else []
            self._waiting = [] if released else self._waiting
            state = self._state(None)
        for deferred in released:
            deferred.resolve(state)

    def describe(self) -> dict[str, Any]:
        """What its owner announces of it: plain values, the arguments of DistributedReplay.announce of the same names."""
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
            updated = self._take_back(update)
            items, drawn = self._draw(count)
            return {**self._state(payload, updated), "items": items, "drawn": drawn}

    def update(self, sender: str, payload: Payload) -> Payload:
        update = _update(payload, required=True)
        with self._lock:
            return self._state(payload, self._take_back(update))

    def stats(self, sender: str, payload: Payload) -> Payload:
        with self._lock:
            return self._state(payload)

    def insert(self, sender: str, payload: Payload) -> Payload | DeferredReply:
        source = (field(payload, "incarnation", str), field(payload, "sequence", int))
        items, priorities = field(payload, "items", dict), field(payload, "priorities", Tensor)
        for name in items:
            field(items, name, Tensor)
        with self._lock:
            incarnation, last = self._seen.get(sender, ("", 0))
            if incarnation != source[0] or last < source[1]:
                self._buffer.add(items, priorities)
                self._seen[sender] = source
            if self._has_room():
                return self._state(payload)
            deferred = DeferredReply()
            self._waiting.append(deferred)
            return deferred

    def get_state(self) -> dict[str, Any]:
        with self._lock:
            return {"buffer": self._buffer.get_state(), "seen": dict(self._seen)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on with what a lost process had; its counts go on too."""
        with self._lock:
            self._buffer.set_state(state["buffer"])
            self._seen = {sender: (source[0], source[1]) for sender, source in state["seen"].items()}
            self._resumed = self._buffer.counts

    def check_valid(self) -> None:
        """Raises AssertionError, saying which, if an invariant does not hold."""
        with self._lock:
            self._buffer.check_valid()
            assert not (self._waiting and self._has_room()), "somebody waits although there is room"

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

    def _take_back(self, update: Tensor | None) -> tuple[int, int]:
        if update is None:
            return (0, 0)
        slots, versions, priorities = update.numpy()
        where, which = (torch.from_numpy(row.astype(np.int64)) for row in (slots, versions))
        return self._buffer.update(where, which, torch.from_numpy(priorities))

    def _draw(self, count: int) -> tuple[dict[str, Tensor], Tensor]:
        if not self._buffer.priority_sum > 0:
            return {}, torch.empty(len(SAMPLE_FIELDS), 0, dtype=torch.float64)
        draw = self._buffer.sample(count)
        drawn = np.empty((len(SAMPLE_FIELDS), count))
        for row, name in zip(drawn, SAMPLE_FIELDS, strict=True):
            row[:] = getattr(draw, name).numpy()
        return draw.items, torch.from_numpy(drawn)


class ShardPeer(Protocol):
    """What shards are called through: a transport's Peer, or a LocalPeer."""

    def call(self, service: str, payload: Payload, *, timeout: float | None = None) -> Call: ...


class LocalPeer:
    """A shard in this very process, called without RPC."""

    def __init__(self, shard: ReplayShard) -> None:
        self._services = shard.services

    def call(self, service: str, payload: Payload, *, timeout: float | None = None) -> Call:
        """Answered when it returns. The answer's `result` raises as that of an RPC would."""
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
