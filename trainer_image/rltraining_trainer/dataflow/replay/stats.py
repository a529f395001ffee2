"""Statistics of a replay, for metrics and for the job's status."""

from __future__ import annotations

from typing import NamedTuple

from rltraining_api.status import ReplayStatus


class ReplayStats(NamedTuple):
    """The state of a replay, and counts since the start of the run.

    Invariants: inserted = evicted + size + lost for items, and drawn = applied + stale +
    priorities_lost + outstanding for samples.
    """

    shards: int
    size: int
    inserted: int
    evicted: int
    lost: int
    """Items in shards that have ended or are silent."""
    restarted: int
    """Number of restarts of shards."""
    drawn: int
    """Samples of this learner. The following counts are of this learner, too."""
    applied: int
    stale: int
    """Priorities of items that had been evicted."""
    priorities_lost: int
    """Samples without a new priority, because of a lost shard or learner or a discarded batch."""
    outstanding: int
    """Samples that are requested, in use, or not acknowledged yet."""
    sample_age: float
    """Insertions into the shard since the item was added, averaged over the last batches."""
    sizes: dict[str, int]
    """Number of items by the name of the shard."""

    @property
    def replay_ratio(self) -> float:
        """Samples per insertion."""
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
