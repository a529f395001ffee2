"""For whom those who learn in step wait: a dead or slow sampler costs them its deadline once, then ever more seldom."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

_MOST_DOUBLINGS = 10


@dataclass
class _Record:
    misses: int = 0
    """Deadlines missed in a row."""
    awaited_from: int = 0
    """The iteration from which on it is waited for again."""


class Patience:
    """Who is waited for in which iteration.

    Args:
        expected: the names of those who should be there.
    """

    def __init__(self, expected: Callable[[], Collection[str]]) -> None:
        self._expected = expected
        self._records: dict[str, _Record] = {}

    def awaited(self, iteration: int) -> set[str]:
        """For whom to wait in ``iteration``."""
        records = self._records
        return {
            name
            for name in self._expected()
            if name not in records or records[name].awaited_from <= iteration
        }

    def came_in_time(self, names: Iterable[str]) -> None:
        for name in names:
            self._records.pop(name, None)

    def came_late(self, names: Iterable[str], iteration: int) -> None:
        """After n misses in a row nobody waits for it for 2ⁿ iterations."""
        for name in names:
            record = self._records.setdefault(name, _Record())
            record.misses += 1
            record.awaited_from = iteration + 2 ** min(record.misses, _MOST_DOUBLINGS)

    def begin_anew(self) -> None:
        """Iterations are counted from 0 again: everybody is waited for."""
        self._records.clear()

    def began_anew(self, name: str, iteration: int) -> None:
        """It is there, and begins with the parameters of this iteration."""
        if name in self._records:
            self._records[name].awaited_from = iteration
