"""The steps and episodes that each learner of a job has counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class LearnerCounts:
    """A pair (steps, episodes) per learner: what this learner has counted itself, without reports, in all its incarnations.

    Each round of the group carries the pairs of all learners, and every learner keeps the largest. If a learner dies, the
    others therefore keep its counts, as they keep the updates with these steps.
    """

    def __init__(self, index: int, learners: int) -> None:
        """``index``: this learner, from 0. ``learners``: number of learners of the job."""
        self.index = index
        self._table = [0.0] * (2 * learners)  # steps, episodes, steps, episodes, ...
        self._added = [0, 0]  # by this incarnation

    @property
    def values(self) -> tuple[float, ...]:
        """The pairs of all learners, in order. Exact, since a float64 holds any whole number below 2^53."""
        return tuple(self._table)

    def add(self, steps: int, episodes: int) -> None:
        """Adds to the pair of this learner."""
        for place, count in enumerate((steps, episodes)):
            self._table[2 * self.index + place] += count
            self._added[place] += count

    def follow(self, largest: Sequence[float]) -> tuple[int, int]:
        """Takes over larger pairs, and returns by how many steps and episodes the table has grown.

        A larger pair of this learner is from an earlier incarnation, so the counts of this one are added to it. If only one
        count is larger, the equal one may be from this learner itself, since a round takes the larger of each count.
        """
        if tuple(largest) == self.values:
            return 0, 0
        # Keep the larger counts.
        before, own = self._table, range(2 * self.index, 2 * self.index + 2)
        self._table = [max(pair) for pair in zip(before, largest, strict=True)]
        # Add what this incarnation has counted to the counts of an earlier one.
        if any(self._table[place] > before[place] for place in own):
            for place, added in zip(own, self._added, strict=True):
                if largest[place] != before[place]:
                    self._table[place] = max(before[place], largest[place] + added)
        grown = [int(sum(self._table[place::2]) - sum(before[place::2])) for place in (0, 1)]
        return grown[0], grown[1]

    def set(self, values: Iterable[float]) -> None:
        """Replaces all pairs, for example by the pairs of a checkpoint, which may have another number of learners."""
        known = [float(value) for value in values][: len(self._table)]
        self._table = known + [0.0] * (len(self._table) - len(known))
        self._added = [0, 0]
