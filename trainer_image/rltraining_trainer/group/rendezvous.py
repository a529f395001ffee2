"""The rendezvous of the learners, as in torchelastic: which of them form the next group.

The `Rendezvous` runs in learner 0. Other learners join it by RPC and then exchange the addresses of
their process group through its key-value store (`RendezvousStore`). torch's TCPStore is made for
that, but its clients sometimes fail to connect for seconds (1 of 20 on loopback, torch 2.13), it
listens on all interfaces, and it has no authentication.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import torch
from torch.distributed.distributed_c10d import Store

from rltraining_trainer.transport import Call, DeferredReply, Handler, Payload, Peer, Stopped
from rltraining_trainer.transport.calls import OK

Backend: TypeAlias = Literal["gloo", "nccl"]

_POLL_SECONDS = 0.05
"""How often `stopping` is checked."""


@dataclass(frozen=True)
class Candidate:
    """A learner that joins the next round."""

    index: int
    """Number of the learner in the job. Learner 0 runs the rendezvous."""
    generation: int
    """Number of the last round that the learner was a member of. 0: none."""
    updates: int
    """Updates that its state has seen."""
    device: str
    """Location of its gradients: "cpu", or the UUID of a GPU."""


@dataclass(frozen=True)
class RendezvousRound:
    """Learners that update together, until one of them dies or another learner joins."""

    number: int
    """Grows with each round, also over restarts of learner 0."""
    members: tuple[int, ...]
    """Indices of the learners in the order of their ranks. Learner 0 has rank 0."""
    source: int
    """Rank of the member that sends its state to all others."""
    backend: Backend
    """Sums the gradients."""


def is_complete(joined: Collection[int], expected: Collection[int], now: float, deadline: float) -> bool:
    """Returns whether all `expected` learners have joined, or the deadline has passed."""
    return now >= deadline or set(expected) <= set(joined)


def next_round(candidates: Sequence[Candidate]) -> RendezvousRound:
    """Returns the round of `candidates`, whose indices differ.

    Its state is that of the member with the most updates, and of the lowest rank among equals. An
    update is therefore kept as long as one of the learners that applied it is alive.
    """
    members = sorted(candidates, key=lambda candidate: candidate.index)
    source = max(range(len(members)), key=lambda rank: members[rank].updates)
    return RendezvousRound(
        number=1 + max(candidate.generation for candidate in members),
        members=tuple(candidate.index for candidate in members),
        source=source,
        backend=choose_backend([candidate.device for candidate in members]),
    )


def choose_backend(devices: Sequence[str]) -> Backend:
    """Returns NCCL if each learner has a separate GPU, which NCCL requires, otherwise gloo."""
    separate_gpus = "cpu" not in devices and len(set(devices)) == len(devices)
    return "nccl" if separate_gpus else "gloo"


class Rendezvous:
    """Forms rounds in learner 0, and stores the addresses of their members. Thread-safe."""

    def __init__(self) -> None:
        self.services: Mapping[str, Handler] = {
            "join": self._join,
            "store_set": self._store_set,
            "store_get": self._store_get,
        }
        self._changed = threading.Condition()
        self._waiting: dict[int, tuple[Candidate, DeferredReply]] = {}
        # None after a member has left the round.
        self._round: RendezvousRound | None = None
        self._values: dict[str, Payload] = {}
        self._readers: dict[str, list[DeferredReply]] = {}
        self._done = False

    def call(self, service: str, payload: Payload, *, timeout: float) -> Call:
        """Calls a service in this process, like ``Peer.call``. So learner 0 needs no connection to itself,
        which could break."""
        call, answer = Call("learner 0", timeout), self.services[service]("", payload)
        if isinstance(answer, DeferredReply):
            answer.attach(call.settle)
        else:
            call.settle((OK, answer))
        return call

    @property
    def has_candidates(self) -> bool:
        """Whether a learner waits for the next round."""
        return bool(self._waiting)

    def form(
        self, first: Candidate, expected: Collection[int], seconds: float, stopping: threading.Event
    ) -> RendezvousRound:
        """Forms a round of learner 0 and the learners that have joined. Clears the store.

        Waits up to `seconds` for the learners with `expected` indices. Raises Stopped if `stopping`
        is set meanwhile.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            # Wait for the expected learners.
            while not is_complete(self._waiting, expected, now := time.monotonic(), deadline):
                if stopping.is_set():
                    raise Stopped("stopped while waiting for learners")
                self._changed.wait(min(_POLL_SECONDS, deadline - now))
            # Replace the previous round and its store.
            waiting, self._waiting = self._waiting, {}
            new_round = next_round([first, *(candidate for candidate, _ in waiting.values())])
            self._round, self._values = new_round, {}
            readers = self._take_readers()
        # Reply without the lock.
        for reader in readers:
            reader.fail("the next round has formed")
        for _, reply in waiting.values():
            reply.resolve({"done": False, "generation": asdict(new_round)})
        return new_round

    def finish(self) -> None:
        """Replies to all candidates, now and later, that the run is done."""
        with self._changed:
            self._done = True
            waiting, self._waiting = self._waiting, {}
        for _, reply in waiting.values():
            reply.resolve({"done": True})

    def _join(self, sender: str, payload: Payload) -> Payload | DeferredReply:
        candidate = Candidate(**_fields(payload))
        if candidate.index < 1:
            raise ValueError(f"learner {candidate.index} cannot join, because it runs the rendezvous")
        reply = DeferredReply()
        with self._changed:
            if self._done:
                return {"done": True}
            # Replace an earlier call of the same learner.
            previous = self._waiting.get(candidate.index)
            self._waiting[candidate.index] = candidate, reply
            self._changed.notify_all()
            # A member that joins again has left its round and will not store its address there.
            readers: list[DeferredReply] = []
            if self._round is not None and candidate.index in self._round.members:
                self._round = None
                readers = self._take_readers()
        # Reply without the lock.
        if previous is not None:
            previous[1].fail(f"learner {candidate.index} has joined again")
        for reader in readers:
            reader.fail(f"learner {candidate.index} has left the round")
        return reply

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
            reply = DeferredReply()
            self._readers.setdefault(fields["key"], []).append(reply)
        return reply

    def _is_current(self, number: int) -> bool:
        return self._round is not None and self._round.number == number

    def _take_readers(self) -> list[DeferredReply]:
        readers = [reader for readers in self._readers.values() for reader in readers]
        self._readers = {}
        return readers


class RendezvousStore(Store):
    """Gives torch's process groups access to the store of one round. A key is written once.

    torch calls the methods from C++ and lets their TransportError pass.
    """

    def __init__(self, first: Peer | Rendezvous, number: int, seconds: float) -> None:
        """Uses the store of round `number` in learner 0.

        Args:
            first: Learner 0, or in learner 0 its rendezvous.
            seconds: Time-out for a value.
        """
        super().__init__()
        self._first = first
        self._number = number
        self._seconds = seconds
        self._cache: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:  # type: ignore[override]
        content = torch.frombuffer(bytearray(value), dtype=torch.uint8)
        self._call("store_set", key, value=content)

    def get(self, key: str) -> bytes:
        if key not in self._cache:
            self._cache[key] = self._call("store_get", key).numpy().tobytes()
        return self._cache[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self.get(key)

    def _call(self, service: str, key: str, **fields: Any) -> Any:
        message = {"number": self._number, "key": key, **fields}
        return self._first.call(service, message, timeout=self._seconds).result()


def _over(number: int) -> DeferredReply:
    """Returns a failed reply. An exception would be logged as a bug, but a late call is normal."""
    reply = DeferredReply()
    reply.fail(f"round {number} is over")
    return reply


def _fields(payload: Payload) -> dict[str, Any]:
    if not isinstance(payload, dict):
        raise TypeError("the payload of a rendezvous call must be a dict")
    return payload
