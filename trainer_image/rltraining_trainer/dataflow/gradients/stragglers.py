"""Limits the time for which synchronous samplers wait for dead and slow ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

_MOST_DOUBLINGS = 10


@dataclass
class _Record:
    misses: int = 0
    """Number of consecutive missed deadlines."""
    awaited_from: int = 0
    """The first iteration that waits for this sampler again."""


class StragglerPolicy:
    """Determines for which samplers an iteration waits.

    After n consecutive misses of a sampler, the next 2ⁿ iterations do not wait for it.

    Args:
        expected: returns the names of all samplers.
    """

    def __init__(self, expected: Callable[[], Collection[str]]) -> None:
        self._expected = expected
        self._records: dict[str, _Record] = {}

    def awaited(self, iteration: int) -> set[str]:
        """Returns the samplers for which ``iteration`` waits."""
        records = self._records
        return {
            name
            for name in self._expected()
            if name not in records or records[name].awaited_from <= iteration
        }

    def on_arrival(self, names: Iterable[str]) -> None:
        """Records samplers that met the deadline."""
        for name in names:
            self._records.pop(name, None)

    def on_miss(self, names: Iterable[str], iteration: int) -> None:
        """Records samplers that missed the deadline."""
        for name in names:
            record = self._records.setdefault(name, _Record())
            record.misses += 1
            record.awaited_from = iteration + 2 ** min(record.misses, _MOST_DOUBLINGS)

    def reset(self) -> None:
        """Waits for all samplers again, since iterations start at 0 again."""
        self._records.clear()

    def on_restart(self, name: str, iteration: int) -> None:
        """Waits for a sampler that has restarted with the parameters of this iteration."""
        if name in self._records:
            self._records[name].awaited_from = iteration
