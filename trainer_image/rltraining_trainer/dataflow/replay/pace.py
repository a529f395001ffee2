"""Who may go on now: the learners to draw, each shard to insert."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from rltraining_api.algorithms.replay import Replay

from rltraining_trainer.dataflow.replay.rate_limiter import RateLimiter
from rltraining_trainer.dataflow.replay.shard_map import ShardMap


class ShardedRateLimiter:
    """The rate limiter of a memory whose shards come and go. Not thread-safe.

    Learning begins when as much was inserted into the shards that are present as `minimum` says, and begins so again after
    less than a batch was left; until then inserting is free. So neither a loss of shards nor a learner that starts again
    can make both sides wait.
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
        self._others = 0  # insertions for which a learner before this one has drawn

    def is_filled(self) -> bool:
        """Whether there is enough to learn from."""
        if self._present_insertions() >= self._minimum:
            self._filled = True
        elif self._shards.holdings().size < self._batch_size:
            self._filled = False
        return self._filled

    def may_draw(self, most: int) -> int:
        """How many more batches, up to `most`, all learners together may draw."""
        if not self.is_filled():
            return 0
        inserted, size = self._inserted(), self._batch_size
        later = (self._sampled + batches * size for batches in range(most))
        return sum(
            1 for _ in takewhile(lambda sampled: self._limiter.may_sample(inserted, sampled, size), later)
        )

    def on_sampled(self, batches: int) -> None:
        """All learners together draw so many more."""
        self._sampled += batches * self._batch_size

    def forgive(self, inserted: int) -> None:
        """So many of the insertions are of before this learner, which knows nothing of what was drawn for them. It owes
        nothing for them, but for `minimum` of them, with which it may begin."""
        self._others += inserted

    def insert_limit(self, name: str) -> int | None:
        """How many insertions the shard of that name may have made by now; None: no limit. It may be less than it was.

        What may still be inserted at all is divided evenly over the shards that are present, less what the others were
        told that they may. Where there are others, one that was told so and inserts nothing may still insert one, but
        keeps it from nobody.
        """
        allowed = self._limiter.insert_limit(self._sampled)
        if allowed is None:
            return None
        shard, present = self._shards.get(name), self._shards.present
        if shard is None or not shard.present:
            return 0
        inserted = self._inserted()
        if not self.is_filled():
            allowed = max(allowed, inserted + self._minimum - self._present_insertions())
        shard.idle = shard.counts.inserted == shard.asked_with and shard.granted > shard.asked_with
        shard.asked_with = shard.counts.inserted
        others = [other for other in present if other is not shard and not other.idle]
        promised = sum(max(0, other.granted - other.counts.inserted) for other in others)
        room = allowed - inserted
        share = 1 if shard.idle and len(present) > 1 else max(1, room // (1 + len(others)))
        shard.granted = shard.counts.inserted + max(0, min(share, room - promised))
        return shard.granted

    def get_state(self) -> dict[str, Any]:
        return {"sampled": self._sampled, "others": self._others}

    def set_state(self, state: dict[str, Any]) -> None:
        self._sampled, self._others = state["sampled"], state["others"]

    def _inserted(self) -> int:
        return self._shards.holdings().inserted - max(0, self._others - self._minimum)

    def _present_insertions(self) -> int:
        return sum(shard.counts.inserted for shard in self._shards.present)
