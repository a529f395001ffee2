"""Learners beyond the first: they are told where the shards are, and tell what they have drawn."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.replay import ReplayStats
from rltraining_trainer.roles.context import Context
from rltraining_trainer.transport import Backoff, Endpoint, Handler, Payload, PeerLost, Stopped, discover

_LOG = logging.getLogger(__name__)

PERIOD = 0.25
"""Seconds between two looks at the first learner's map of shards."""
_COUNTS = ("drawn", "applied", "stale", "priorities_lost", "outstanding")


class Followers:
    """The first learner's side: answers the service "shards"."""

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


class Follower:
    """Another learner's side: a thread that asks the first one, whoever that is now.

    Args:
        follow: takes the shards there are; returns this learner's figures.
    """

    def __init__(
        self,
        context: Context,
        endpoint: Callable[[], Endpoint],
        follow: Callable[[list[dict[str, Any]]], ReplayStats],
    ) -> None:
        self._context, self._endpoint, self._follow = context, endpoint, follow
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shards", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        backoff = Backoff()
        stats: ReplayStats | None = None
        while not self._stopping.is_set():
            try:
                first = discover(self._context.learners[0], self._context.token, stopping=self._stopping)
                peer = self._endpoint().dial(first["url"])
                while not self._stopping.wait(PERIOD):
                    counts = {name: getattr(stats, name) if stats else 0 for name in _COUNTS}
                    message = {"incarnation": self._endpoint().incarnation, **counts}
                    shards: Any = peer.call("shards", message).result(self._stopping)
                    stats = self._follow(shards)
                    backoff.reset()
            except Stopped:
                return
            except PeerLost as error:
                _LOG.debug("no first learner: %s", error)
                backoff.wait(self._stopping)
