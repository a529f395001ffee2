"""How far learner and samplers may run ahead of each other."""

from __future__ import annotations

from math import floor


class RateLimiter:
    """Keeps draws and insertions in proportion, as Reverb's SampleToInsertRatio does (Cassirer et al. 2021, arXiv
    2102.04736).

    ``error = sampled - (inserted - minimum) · samples_per_insert`` stays within ± `bound`: beyond it the side that is
    ahead waits for the other. The bound is tolerance · samples_per_insert · minimum, as in Acme, but at least two
    batches and at least one insertion's worth of draws: with less, both sides could wait at once for ever.
    """

    def __init__(
        self, samples_per_insert: float | None, tolerance: float, minimum: int, batch_size: int
    ) -> None:
        """
        Args:
            samples_per_insert: draws for each insertion, on average; None: neither side ever waits.
            tolerance: how far it may go wrong, as a fraction of samples_per_insert · minimum.
            minimum: insertions before the first draw.
            batch_size: draws that are made at once.
        """
        self._ratio = samples_per_insert
        self._minimum = minimum
        self.bound = (
            0.0
            if samples_per_insert is None
            else max(tolerance * samples_per_insert * minimum, 2.0 * batch_size, samples_per_insert)
        )

    def error(self, inserted: int, sampled: int) -> float:
        """Draws made less draws due; 0 without a ratio."""
        return 0.0 if self._ratio is None else sampled - (inserted - self._minimum) * self._ratio

    def may_sample(self, inserted: int, sampled: int, count: int) -> bool:
        """Whether `count` more items may be drawn now."""
        if inserted < self._minimum:
            return False
        return self._ratio is None or self.error(inserted, sampled) + count <= self.bound

    def insert_limit(self, sampled: int) -> int | None:
        """How many insertions there may have been by now, from the very first; None: no limit."""
        if self._ratio is None:
            return None
        return self._minimum + floor((sampled + self.bound) / self._ratio)
