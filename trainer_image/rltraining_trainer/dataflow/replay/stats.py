"""What there is to tell of a replay memory."""

from __future__ import annotations

from typing import NamedTuple


class ReplayStats(NamedTuple):
    """The memory at one moment, and what became of everything since the run began.

    inserted = evicted + size + lost, in transitions; drawn = applied + stale + priorities_lost + outstanding, in draws.
    """

    shards: int
    size: int
    inserted: int
    evicted: int
    lost: int
    """Transitions that ended with their shard, or are in one that is silent."""
    restarted: int
    """How often a shard was replaced by another of its name."""
    drawn: int
    """By this learner, as all that follows."""
    applied: int
    stale: int
    """Priorities that came after their items had been evicted."""
    priorities_lost: int
    """Draws whose priorities never came: the shard was lost, or the learner, or the learner had none."""
    outstanding: int
    """Draws that are under way, in use, or not acknowledged yet."""
    sample_age: float
    """Mean of the last batches: insertions into its shard since an item was added."""
    sizes: dict[str, int]
    """By the shard's name."""

    @property
    def replay_ratio(self) -> float:
        """Draws for each insertion."""
        return self.drawn / self.inserted if self.inserted else 0.0
