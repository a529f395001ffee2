"""Learner 0's side of forming a generation: the others wait here, and find each other's addresses here.

The addresses go through our own RPC. torch's TCPStore is made for that, but its clients fail to connect for
seconds now and then (1 of 20 on loopback, torch 2.13), it listens on all interfaces, and it asks for no token.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from rltraining_trainer.group.rendezvous import Candidate, RendezvousRound, is_complete, next_generation
from rltraining_trainer.transport import DeferredReply, Handler, Payload, Stopped

_GLANCE = 0.05
"""Seconds between two looks at `stopping`."""


class Rendezvous:
    """Calls wait here until a generation forms, or a value is there. Thread-safe."""

    def __init__(self) -> None:
        self.services: Mapping[str, Handler] = {
            "join": self._join,
            "store_set": self._store_set,
            "store_get": self._store_get,
        }
        self._changed = threading.Condition()
        self._waiting: dict[int, tuple[Candidate, DeferredReply]] = {}
        self._generation: RendezvousRound | None = None  # None once a member has left it
        self._values: dict[str, Payload] = {}
        self._readers: dict[str, list[DeferredReply]] = {}
        self._done = False

    @property
    def occupied(self) -> bool:
        """Whether somebody waits for the next generation."""
        return bool(self._waiting)

    def form(
        self, first: Candidate, expected: Collection[int], seconds: float, stopping: threading.Event
    ) -> RendezvousRound:
        """The next generation: `first`, which is learner 0, with those who wait when all `expected` indices do, or
        after `seconds`. Those who wait get their answers, and the store begins empty.

        Raises:
            Stopped: `stopping` was set.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while not is_complete(self._waiting, expected, now := time.monotonic(), deadline):
                if stopping.is_set():
                    raise Stopped("stopped while waiting for learners")
                self._changed.wait(min(_GLANCE, deadline - now))
            waiting, self._waiting = self._waiting, {}
            generation = next_generation([first, *(candidate for candidate, _ in waiting.values())])
            self._generation, self._values = generation, {}
            readers = self._take_readers()
        for reader in readers:
            reader.fail("the next generation has formed")
        for _, deferred in waiting.values():
            deferred.resolve({"done": False, "generation": asdict(generation)})
        return generation

    def finish(self) -> None:
        """From now on tell those who come that the run is done."""
        with self._changed:
            self._done = True
            waiting, self._waiting = self._waiting, {}
        for _, deferred in waiting.values():
            deferred.resolve({"done": True})

    def _join(self, sender: str, payload: Payload) -> Payload | DeferredReply:
        candidate = Candidate(**_fields(payload))
        if candidate.index < 1:
            raise ValueError(f"learner {candidate.index} cannot join: it is the one that others join")
        deferred = DeferredReply()
        with self._changed:
            if self._done:
                return {"done": True}
            before = self._waiting.get(candidate.index)
            self._waiting[candidate.index] = candidate, deferred
            self._changed.notify_all()
            readers: list[DeferredReply] = []
            if self._generation is not None and candidate.index in self._generation.members:
                self._generation = None  # it has left, and its address will not come
                readers = self._take_readers()
        if before is not None:
            before[1].fail(f"learner {candidate.index} has joined again")
        for reader in readers:
            reader.fail(f"learner {candidate.index} has left the generation")
        return deferred

    def _store_set(self, sender: str, payload: Payload) -> Payload | DeferredReply:
        fields = _fields(payload)
        with self._changed:
            if not self._is_current(fields["number"]):
                return _over(fields["number"])
            self._values[fields["key"]] = fields["value"]
            readers = self._readers.pop(fields["key"], [])
        for reader in readers:
            reader.resolve(fields["value"])
        return None

    def _store_get(self, sender: str, payload: Payload) -> Payload | DeferredReply:
        fields = _fields(payload)
        with self._changed:
            if not self._is_current(fields["number"]):
                return _over(fields["number"])
            if fields["key"] in self._values:
                return self._values[fields["key"]]
            deferred = DeferredReply()
            self._readers.setdefault(fields["key"], []).append(deferred)
        return deferred

    def _is_current(self, number: int) -> bool:
        return self._generation is not None and self._generation.number == number

    def _take_readers(self) -> list[DeferredReply]:
        readers = [reader for readers in self._readers.values() for reader in readers]
        self._readers = {}
        return readers


def _over(number: int) -> DeferredReply:
    """No bug, and so no exception: the caller had been left behind."""
    deferred = DeferredReply()
    deferred.fail(f"generation {number} is over")
    return deferred


def _fields(payload: Payload) -> dict[str, Any]:
    if not isinstance(payload, dict):
        raise TypeError("a call to the rendezvous is a dict")
    return payload
