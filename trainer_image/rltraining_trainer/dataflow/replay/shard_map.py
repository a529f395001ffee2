"""Which shards there are, what they hold, and what became of all that ever went into one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rltraining_trainer.dataflow.replay.buffer import ReplayCounts
from rltraining_trainer.dataflow.replay.shard import ShardPeer

NO_COUNTS = ReplayCounts(0, 0, 0, 0, 0)


class Holdings(NamedTuple):
    """Transitions of all shards that there ever were, by what was last heard of each: inserted = evicted + size + lost."""

    inserted: int
    evicted: int
    size: int
    """In shards that are present."""
    lost: int
    """With shards that ended, or that are silent: these may come back."""


@dataclass(eq=False)
class Shard:
    """One incarnation of a shard, as it was last heard of."""

    name: str
    incarnation: str
    url: str
    counts: ReplayCounts
    priority_sum: float
    base: ReplayCounts
    """What it had when it began, which counts as its predecessor's."""
    min_priority: float = math.inf
    """Smallest powered priority; infinity if unknown."""
    heard: float = 0.0
    """When, in seconds."""
    announcements: int = 0
    present: bool = False
    """It has announced itself, and nothing has gone wrong since."""
    peer: ShardPeer | None = None
    """How it is reached, once it was dialled."""
    answers: bool = False
    """The peer has answered, so that draws may rely on it."""
    answered: float = 0.0
    """When it last did."""
    granted: int = 0
    """How many insertions it was told that it may have made."""
    asked_with: int = -1
    """How many it had made when it was told so."""
    idle: bool = False
    """It makes none, although it may."""

    @property
    def size(self) -> int:
        return self.counts.inserted - self.counts.evicted

    def observe(self, counts: ReplayCounts, mass: float, smallest: float | None) -> None:
        """Take what it says of itself, unless something newer was heard: answers overtake one another."""
        if sum(counts) >= sum(self.counts):  # each of them only grows
            self.counts, self.priority_sum = counts, mass
            self.min_priority = self.min_priority if smallest is None else smallest

    def leave(self) -> None:
        """Not to be drawn from until it announces itself again."""
        self.present, self.peer, self.answers = False, None, False


class ShardMap:
    """Shards by name. Not thread-safe.

    A shard that announces itself under another incarnation is another shard: what the old one held is lost, less what the
    new one went on with.
    """

    def __init__(self) -> None:
        self._shards: dict[str, Shard] = {}
        self._ended = Holdings(0, 0, 0, 0)  # incarnations that were replaced
        self._predecessors: dict[str, str] = {}  # whose words may still be on their way
        self.restarted = 0
        """How often a shard was replaced by another of its name."""

    @property
    def present(self) -> list[Shard]:
        return [shard for shard in self._shards.values() if shard.present]

    def get(self, name: str) -> Shard | None:
        return self._shards.get(name)

    def knows(self, shard: Shard) -> bool:
        """Whether this incarnation is present."""
        return shard.present and self._shards.get(shard.name) is shard

    def announce(
        self,
        name: str,
        incarnation: str,
        url: str,
        mass: float,
        counts: ReplayCounts,
        now: float,
        *,
        resumed: ReplayCounts = NO_COUNTS,
    ) -> Shard | None:
        """A shard says that it is there.

        Returns:
            The shard that it thereby replaced, if there is one.
        """
        shard, replaced = self._shards.get(name), None
        if shard is None or shard.incarnation != incarnation:
            if incarnation == self._predecessors.get(name):
                return None
            base = NO_COUNTS
            if shard is not None:
                replaced, base = shard, resumed
                self._end(shard, resumed)
            shard = self._shards[name] = Shard(name, incarnation, url, counts, mass, base)
        if shard.url != url:
            shard.leave()
            shard.url = url
        shard.present = True
        shard.announcements += 1
        shard.heard = now
        shard.observe(counts, mass, None)
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
        """The shards that are present, as plain values for another learner's `merge`."""
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
        """Make these the shards that are present. One that this side gave up stays so until it announced itself anew.

        Returns:
            Those that are gone.
        """
        before = self.present
        told = {entry["name"]: entry for entry in entries}
        for name, entry in told.items():
            shard = self._shards.get(name)
            if shard is not None and _is_old_news(shard, entry):
                continue
            self.announce(
                name, entry["incarnation"], entry["url"], entry["mass"], ReplayCounts(*entry["counts"]), now
            )
            self._shards[name].announcements = entry["announcements"]
        for shard in before:
            if shard.name not in told:
                shard.leave()
        return [shard for shard in before if not self.knows(shard)]

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
        """Go on from `state`: its shards are away until they announce themselves, and their counts go on then."""
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
        """Raises AssertionError, saying which, if an invariant does not hold."""
        held = self.holdings()
        assert held.inserted == held.evicted + held.size + held.lost, f"transitions got lost: {held}"
        for shard in self._shards.values():
            assert shard.present or shard.peer is None, f"shard {shard.name} is away, but can be called"
            assert shard.peer is not None or not shard.answers, (
                f"shard {shard.name} answers, but cannot be called"
            )

    def _end(self, shard: Shard, resumed: ReplayCounts) -> None:
        shard.leave()
        self.restarted += 1
        self._predecessors[shard.name] = shard.incarnation
        # What the new one went on with may be later than the last that was heard of the old one.
        last = max(shard.counts, resumed, key=_inserted)
        left = (last.inserted - last.evicted) - (resumed.inserted - resumed.evicted)
        self._ended = Holdings(
            self._ended.inserted + last.inserted - shard.base.inserted,
            self._ended.evicted + last.evicted - shard.base.evicted,
            0,
            self._ended.lost + left,
        )


def _inserted(counts: ReplayCounts) -> int:
    return counts.inserted


def _is_old_news(shard: Shard, entry: dict[str, Any]) -> bool:
    same = (shard.incarnation, shard.announcements) == (entry["incarnation"], entry["announcements"])
    return same and not shard.present
