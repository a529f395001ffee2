"""The learner's view of the shards: which are present, and how many items they have."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rltraining_trainer.dataflow.replay.buffer import ReplayCounts
from rltraining_trainer.dataflow.replay.shard import ShardPeer

NO_COUNTS = ReplayCounts(0, 0, 0, 0, 0)
PAUSE_SECONDS = 1.0
"""A longer time without a call of `ShardMap.excuse_pause` is a pause of the learner."""


class Holdings(NamedTuple):
    """Items of all shards, including past ones, by their latest messages.

    Invariant: inserted = evicted + size + lost.
    """

    inserted: int
    evicted: int
    size: int
    """Items in present shards."""
    lost: int
    """Items in shards that have ended, or that are absent and may return."""


@dataclass(eq=False)
class Shard:
    """One incarnation of a shard, by its latest message."""

    name: str
    incarnation: str
    url: str
    counts: ReplayCounts
    priority_sum: float
    base: ReplayCounts
    """Counts when it started, which belong to its predecessor."""
    min_priority: float = math.inf
    """The smallest positive powered priority, or infinity if unknown."""
    heard: float = 0.0
    """Time of the latest message in seconds."""
    announcements: int = 0
    present: bool = False
    """Whether it has announced itself, without an error since."""
    peer: ShardPeer | None = None
    """Calls the shard, once it has been dialled."""
    answers: bool = False
    """Whether the peer has answered. Only then is it sampled."""
    answered: float = 0.0
    """Time of its latest answer."""
    granted: int = 0
    """Maximum number of insertions that was granted to it."""
    reserved: int = 0
    """Maximum number of insertions that the other shards leave to it."""
    asked_with: int = -1
    """Number of its insertions when they were granted."""
    idle: bool = False
    """Whether it inserts nothing although it may."""

    @property
    def size(self) -> int:
        return self.counts.inserted - self.counts.evicted

    def observe(self, counts: ReplayCounts, priority_sum: float, min_priority: float | None) -> None:
        """Updates the shard, unless a newer message has overtaken this one."""
        # Each count only grows.
        if sum(counts) >= sum(self.counts):
            self.counts, self.priority_sum = counts, priority_sum
            self.min_priority = self.min_priority if min_priority is None else min_priority

    def leave(self) -> None:
        """Excludes the shard from sampling until it announces itself again."""
        self.present, self.peer, self.answers = False, None, False


class ShardMap:
    """Shards by name. Not thread-safe.

    An announcement with a new incarnation replaces the shard. Its items are lost, except those that
    the new incarnation has restored.
    """

    def __init__(self) -> None:
        self._shards: dict[str, Shard] = {}
        # Items of incarnations that have been replaced.
        self._ended = Holdings(0, 0, 0, 0)
        # The previous incarnation of each shard, whose announcements may arrive late.
        self._predecessors: dict[str, str] = {}
        self.restarted = 0
        """Number of replaced incarnations."""
        self._last_call: float | None = None  # time of the last call of `excuse_pause`

    @property
    def present(self) -> list[Shard]:
        return [shard for shard in self._shards.values() if shard.present]

    def get(self, name: str) -> Shard | None:
        return self._shards.get(name)

    def is_present(self, shard: Shard) -> bool:
        """Returns whether this incarnation is present."""
        return shard.present and self._shards.get(shard.name) is shard

    def excuse_pause(self, now: float) -> None:
        """Does not count a long time since the last call, as during a long update, as silence of the shards.

        The learner may have delayed its answers to their reports during this time.
        """
        pause = 0.0 if self._last_call is None else now - self._last_call
        self._last_call = now
        if pause > PAUSE_SECONDS:
            for shard in self.present:
                shard.heard = min(now, shard.heard + pause)

    def announce(
        self,
        name: str,
        incarnation: str,
        url: str,
        priority_sum: float,
        counts: ReplayCounts,
        now: float,
        *,
        resumed: ReplayCounts = NO_COUNTS,
    ) -> Shard | None:
        """Adds or refreshes a shard. Returns the incarnation that it replaces, or None."""
        # Add a new incarnation.
        shard, replaced = self._shards.get(name), None
        if shard is None or shard.incarnation != incarnation:
            if incarnation == self._predecessors.get(name):
                return None
            base = NO_COUNTS
            if shard is not None:
                replaced, base = shard, resumed
                self._end(shard, resumed)
            shard = self._shards[name] = Shard(name, incarnation, url, counts, priority_sum, base)
        # Redial a shard with a new URL.
        if shard.url != url:
            shard.leave()
            shard.url = url
        shard.present = True
        shard.announcements += 1
        shard.heard = now
        shard.observe(counts, priority_sum, None)
        return replaced

    def holdings(self) -> Holdings:
        inserted, evicted, size, lost = self._ended.inserted, self._ended.evicted, 0, self._ended.lost
        for shard in self._shards.values():
            inserted += shard.counts.inserted - shard.base.inserted
            evicted += shard.counts.evicted - shard.base.evicted
            if shard.present:
                size += shard.size
            else:
                lost += shard.size
        return Holdings(inserted, evicted, size, lost)

    def entries(self) -> list[dict[str, Any]]:
        """Returns the present shards as plain values, for `merge` of another learner."""
        return [
            {
                "name": shard.name,
                "incarnation": shard.incarnation,
                "url": shard.url,
                "mass": shard.priority_sum,
                "counts": list(shard.counts),
                "announcements": shard.announcements,
            }
            for shard in self.present
        ]

    def merge(self, entries: Iterable[dict[str, Any]], now: float) -> list[Shard]:
        """Replaces the present shards. A shard that failed here stays absent until its next
        announcement.

        Returns:
            The shards that are no longer present.
        """
        before = self.present
        by_name = {entry["name"]: entry for entry in entries}
        # Add and refresh shards.
        for name, entry in by_name.items():
            shard = self._shards.get(name)
            if shard is not None and _failed_since(shard, entry):
                continue
            self.announce(
                name, entry["incarnation"], entry["url"], entry["mass"], ReplayCounts(*entry["counts"]), now
            )
            self._shards[name].announcements = entry["announcements"]
        # Remove all others.
        for shard in before:
            if shard.name not in by_name:
                shard.leave()
        return [shard for shard in before if not self.is_present(shard)]

    def get_state(self) -> dict[str, Any]:
        return {
            "ended": list(self._ended),
            "restarted": self.restarted,
            "shards": [
                {
                    "name": shard.name,
                    "incarnation": shard.incarnation,
                    "counts": list(shard.counts),
                    "base": list(shard.base),
                }
                for shard in self._shards.values()
            ],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state. Its shards are absent until they announce themselves."""
        self._ended = Holdings(*state["ended"])
        self.restarted = state["restarted"]
        self._shards = {
            entry["name"]: Shard(
                entry["name"],
                entry["incarnation"],
                "",
                ReplayCounts(*entry["counts"]),
                0.0,
                ReplayCounts(*entry["base"]),
            )
            for entry in state["shards"]
        }
        self._predecessors = {}

    def check_valid(self) -> None:
        """Raises AssertionError with the violated invariant."""
        held = self.holdings()
        total = held.evicted + held.size + held.lost
        assert held.inserted == total, f"an item is not counted exactly once: {held}"
        for shard in self._shards.values():
            assert shard.present or shard.peer is None, f"absent shard {shard.name} has a peer"
            assert shard.peer or not shard.answers, f"shard {shard.name} answers, but has no peer"

    def _end(self, shard: Shard, resumed: ReplayCounts) -> None:
        shard.leave()
        self.restarted += 1
        self._predecessors[shard.name] = shard.incarnation
        # The restored counts may be later than the last message of the old incarnation.
        last = max(shard.counts, resumed, key=lambda counts: counts.inserted)
        left = (last.inserted - last.evicted) - (resumed.inserted - resumed.evicted)
        self._ended = Holdings(
            self._ended.inserted + last.inserted - shard.base.inserted,
            self._ended.evicted + last.evicted - shard.base.evicted,
            0,
            self._ended.lost + left,
        )


def _failed_since(shard: Shard, entry: dict[str, Any]) -> bool:
    """Returns whether the shard is absent here and has not announced itself again."""
    same = (shard.incarnation, shard.announcements) == (entry["incarnation"], entry["announcements"])
    return same and not shard.present
