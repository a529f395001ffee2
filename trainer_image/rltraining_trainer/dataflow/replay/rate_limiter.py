"""Rate limiters, which bound how far sampling and insertion run ahead of each other."""

from __future__ import annotations

from itertools import takewhile
from math import floor
from typing import Any

from rltraining_api.algorithms.replay import Replay

from rltraining_trainer.dataflow.replay.shard_map import ShardMap


class RateLimiter:
    """Keeps a ratio of samples to insertions, like Reverb's SampleToInsertRatio.

    See Cassirer et al. 2021, arXiv 2102.04736.

    Keeps ``error = sampled - (inserted - minimum) · samples_per_insert`` within ± `bound` by
    blocking the side that is ahead. As in Acme the bound is tolerance · samples_per_insert ·
    minimum, but at least two batches and at least the samples of one insertion. With a smaller bound, both
    sides could block each other.
    """

    def __init__(
        self, samples_per_insert: float | None, tolerance: float, minimum: int, batch_size: int
    ) -> None:
        """
        Args:
            samples_per_insert: Average number of samples per insertion. None: no limit.
            tolerance: Permitted error as a fraction of samples_per_insert · minimum.
            minimum: Insertions before the first sample.
            batch_size: Number of items sampled at a time.
        """
        self._ratio = samples_per_insert
        self._minimum = minimum
        self.bound = (
            0.0
            if samples_per_insert is None
            else max(tolerance * samples_per_insert * minimum, 2.0 * batch_size, samples_per_insert)
        )

    def error(self, inserted: int, sampled: int) -> float:
        """Returns by how much samples exceed the ratio, or 0 without a ratio."""
        return 0.0 if self._ratio is None else sampled - (inserted - self._minimum) * self._ratio

    def may_sample(self, inserted: int, sampled: int, count: int) -> bool:
        """Returns whether `count` more items may be sampled now."""
        if inserted < self._minimum:
            return False
        return self._ratio is None or self.error(inserted, sampled) + count <= self.bound

    def insert_limit(self, sampled: int) -> int | None:
        """Returns the maximum number of insertions since the start. None: no limit."""
        if self._ratio is None:
            return None
        return self._minimum + floor((sampled + self.bound) / self._ratio)


class ShardedRateLimiter:
    """The rate limiter of a replay whose shards join and leave. Not thread-safe.

    Sampling starts when the present shards have `minimum` insertions. If less than one batch of items
    is left, sampling stops and starts again in the same way. Until it starts, insertions are not
    limited. Lost shards and restarted learners therefore cannot make both sides block.

    Insertions that fill the memory require no samples, neither the first time nor later. Otherwise
    the learner would sample `minimum` items again and again while samplers wait.
    """

    def __init__(self, shards: ShardMap, settings: Replay, batch_size: int) -> None:
        self._shards = shards
        self._minimum = settings.minimum
        self._batch_size = batch_size
        self._limiter = RateLimiter(
            settings.samples_per_insert, settings.samples_per_insert_tolerance, settings.minimum, batch_size
        )
        self._filled = False
        self._sampled = 0
        # Insertions before the start of this learner, for which an earlier learner has sampled.
        self._prior_insertions = 0
        # Insertions that have refilled the memory, and the number of insertions at the start of the current refill.
        self._refilled = 0
        self._refilled_from: int | None = None

    def is_filled(self) -> bool:
        """Returns whether there are enough items to learn from."""
        present = self._present_insertions()
        if present >= self._minimum:
            if not self._filled:
                self._refilled += self._count_refill(present)
            self._filled, self._refilled_from = True, None
            return True
        if self._shards.holdings().size < self._batch_size:
            self._filled = False
        if not self._filled and self._refilled_from is None and self._shards.present:
            self._refilled_from = self._inserted()
        return self._filled

    def _count_refill(self, present: int) -> int:
        """Returns how many insertions of a completed refill require no samples, besides the first `minimum`."""
        if not self._sampled:
            # Count the insertions into shards that were lost before the first sample.
            return max(0, self._inserted() - present)
        if self._refilled_from is None:
            return 0
        # After a restart of the learner shards may appear one after another. Most insertions are older then.
        return min(self._minimum, self._inserted() - self._refilled_from)

    def may_sample(self, most: int) -> int:
        """Returns how many batches, up to `most`, all learners together may sample now."""
        if not self.is_filled():
            return 0
        inserted, size = self._inserted(), self._batch_size
        later = (self._sampled + batches * size for batches in range(most))
        return sum(
            1 for _ in takewhile(lambda sampled: self._limiter.may_sample(inserted, sampled, size), later)
        )

    def on_sampled(self, batches: int) -> None:
        """Counts batches that all learners together sample."""
        self._sampled += batches * self._batch_size

    def exclude_prior_insertions(self, inserted: int) -> None:
        """Excludes insertions before the start of this learner, whose samples are unknown.

        `minimum` of them still count, so that the learner can start with them.
        """
        self._prior_insertions += inserted

    def insert_limit(self, name: str) -> int | None:
        """Returns the maximum number of insertions of a shard since its start. None: no limit.

        The remaining insertions are divided evenly between the present shards, after subtracting the
        grants of other shards. The limit may decrease. The difference is granted to other shards only
        after this shard asks again, since it may not have received the new limit before. A shard that
        does not use its grant is idle. If there are other shards, an idle shard is granted at most one
        insertion, which is not subtracted from the grants of the others.
        """
        allowed = self._limiter.insert_limit(self._sampled)
        if allowed is None:
            return None
        shard, present = self._shards.get(name), self._shards.present
        if shard is None or not shard.present:
            return 0
        # Determine how many insertions all shards together may have.
        filled, inserted = self.is_filled(), self._inserted()
        if not filled:
            allowed = max(allowed, inserted + self._minimum - self._present_insertions())
        # Determine whether this shard is idle.
        shard.idle = shard.counts.inserted == shard.asked_with and shard.granted > shard.asked_with
        shard.asked_with = shard.counts.inserted
        # Grant this shard its part of the insertions that other shards have not been granted.
        others = [other for other in present if other is not shard]
        promised = sum(max(0, other.reserved - other.counts.inserted) for other in others)
        room = allowed - inserted
        active = 1 + sum(not other.idle for other in others)
        idle = shard.idle and bool(others)  # a single shard gets all insertions, idle or not
        share = 1 if idle else max(1, room // active)
        granted = shard.counts.inserted + max(0, min(share, room - promised))
        # Reserve the earlier grant, if it is larger, until the shard asks again.
        shard.reserved = 0 if idle and granted >= shard.granted else max(granted, shard.granted)
        shard.granted = granted
        return granted

    def get_state(self) -> dict[str, Any]:
        return {
            "sampled": self._sampled,
            "others": self._prior_insertions,
            "refilled": self._refilled,
            "refilled_from": self._refilled_from,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._sampled, self._prior_insertions = state["sampled"], state["others"]
        self._refilled = state.get("refilled", 0)  # a checkpoint of an earlier version has none
        self._refilled_from = state.get("refilled_from")

    def _inserted(self) -> int:
        """Returns the number of insertions that require samples, plus `minimum`."""
        prior = max(0, self._prior_insertions - self._minimum)
        return self._shards.holdings().inserted - prior - self._refilled

    def _present_insertions(self) -> int:
        return sum(shard.counts.inserted for shard in self._shards.present)
