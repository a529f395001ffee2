"""Learners beyond the first: they tell it what they have done, and are told what it knows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.replay import ReplayStats
from rltraining_trainer.roles.context import Context
from rltraining_trainer.transport import (
    Backoff,
    Endpoint,
    Handler,
    Payload,
    PeerLost,
    Stopped,
    TransportError,
    discover,
)

_LOG = logging.getLogger(__name__)

PERIOD = 0.25
"""Seconds between two messages to the first learner."""
_COUNTS = ("drawn", "applied", "stale", "priorities_lost", "outstanding")


class Follower:
    """A thread that talks to the first learner, whoever that is now: one message at a time, each until it is answered.

    Args:
        service: of the first learner.
        ask: the next message, without ``incarnation`` and ``sequence``.
        take: what to do with its answer.
    """

    def __init__(
        self,
        context: Context,
        endpoint: Callable[[], Endpoint],
        service: str,
        ask: Callable[[], dict[str, Any]],
        take: Callable[[Any], None],
    ) -> None:
        self._context, self._endpoint = context, endpoint
        self._service, self._ask, self._take = service, ask, take
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """May be called without a start."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        backoff, sequence = Backoff(), 0
        message: dict[str, Any] | None = None
        while not self._stopping.is_set():
            try:
                first = discover(self._context.learners[0], self._context.token, stopping=self._stopping)
                peer = self._endpoint().dial(first["url"])
                while not self._stopping.wait(PERIOD):
                    if message is None:
                        sequence += 1
                        origin = {"incarnation": self._endpoint().incarnation, "sequence": sequence}
                        message = origin | self._ask()
                    answer = peer.call(self._service, message).result(self._stopping)
                    message = None
                    self._take(answer)
                    backoff.reset()
            except Stopped:
                return
            except TransportError as error:
                _LOG.log(
                    logging.DEBUG if isinstance(error, PeerLost) else logging.WARNING,
                    "no first learner: %s",
                    error,
                )
                backoff.wait(self._stopping)


class Drawers:
    """What the other learners have drawn from the replay memory: the first one's side of the service "shards"."""

    def __init__(self, shards: Callable[[], list[dict[str, Any]]]) -> None:
        self._shards = shards
        self._counts: dict[str, dict[str, dict[str, int]]] = {}  # by learner and its incarnation

    @property
    def services(self) -> Mapping[str, Handler]:
        return {"shards": self._answer}

    def total(self, stats: ReplayStats) -> ReplayStats:
        """The first learner's figures, with what the others have drawn."""
        others = [counts for lives in self._counts.copy().values() for counts in lives.copy().values()]
        sums = {name: getattr(stats, name) + sum(other[name] for other in others) for name in _COUNTS}
        return stats._replace(**sums)

    def get_state(self) -> dict[str, Any]:
        return {sender: lives.copy() for sender, lives in self._counts.copy().items()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Learners that live still tell what they have drawn since."""
        self._counts = {sender: dict(lives) for sender, lives in state.items()}

    def _answer(self, sender: str, payload: Payload) -> Payload:
        counts = {name: field(payload, name, int) for name in _COUNTS}
        lives = self._counts.setdefault(sender, {})
        incarnation = field(payload, "incarnation", str)
        if incarnation not in lives:  # what was outstanding in an earlier life is lost
            for life in lives.values():
                life["priorities_lost"] += life["outstanding"]
                life["outstanding"] = 0
        lives[incarnation] = counts
        return self._shards()


def draws(stats: ReplayStats) -> dict[str, int]:
    """What another learner tells of its draws."""
    return {name: getattr(stats, name) for name in _COUNTS}
