"""What there is to tell of a replay memory."""

from __future__ import annotations

from typing import NamedTuple

from rltraining_api.status import ReplayStatus


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

    def metrics(self) -> dict[str, float | None]:
        """Returns the points of a run's curves."""
        return {
            "replay/shards": self.shards,
            "replay/size": self.size,
            "replay/smallestShard": min(self.sizes.values(), default=0),
            "replay/largestShard": max(self.sizes.values(), default=0),
            "replay/inserted": self.inserted,
            "replay/evicted": self.evicted,
            "replay/lost": self.lost,
            "replay/restarted": self.restarted,
            "replay/sampled": self.drawn,
            "replay/prioritiesApplied": self.applied,
            "replay/prioritiesStale": self.stale,
            "replay/prioritiesLost": self.priorities_lost,
            "replay/outstanding": self.outstanding,
            "replay/ratio": self.replay_ratio,
            "replay/sampleAge": self.sample_age,
        }

    def status(self) -> ReplayStatus:
        """Returns ``status.replay`` of the job."""
        return ReplayStatus(
            shards=self.shards,
            size=self.size,
            inserted=self.inserted,
            evicted=self.evicted,
            lost=self.lost,
            sampled=self.drawn,
            priorities_applied=self.applied,
            priorities_stale=self.stale,
            replay_ratio=round(self.replay_ratio, 3),
            sample_age=round(self.sample_age, 1),
        )
