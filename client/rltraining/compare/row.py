"""Groups runs into rows: one for each point, over its seeds, the best first. Pure."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rltraining.compare.result import Result
from rltraining.sweep.names import titled

NAMES_SHOWN = 2


@dataclass(frozen=True)
class Spread:
    """Mean and spread of several measurements."""

    mean: float
    std: float | None
    """Standard deviation of the sample (n - 1). None for a single measurement."""
    n: int


@dataclass(frozen=True)
class Row:
    """A point with all its seeds."""

    label: str
    values: Mapping[str, Any]
    runs: tuple[Result, ...]
    """Sorted by seed."""

    @property
    def failed(self) -> int:
        return sum(run.failed for run in self.runs)

    @property
    def succeeded(self) -> int:
        return sum(run.phase == "Succeeded" for run in self.runs)

    @property
    def has_goal(self) -> bool:
        # A failed run of a sweep that was resumed with other stop rules still has the earlier ones.
        return any(run.has_goal for run in self.counted or self.runs)

    @property
    def reached(self) -> int:
        """Number of runs that ended because they reached the return of a stop rule."""
        return sum(run.reached for run in self.runs)

    @property
    def counted(self) -> tuple[Result, ...]:
        """The runs that have not failed."""
        return tuple(run for run in self.runs if not run.failed)

    @property
    def mean_return(self) -> Spread | None:
        return spread(run.mean_return for run in self.counted)

    @property
    def steps(self) -> Spread | None:
        """Steps until the stop rule's return, of the runs that reached it. Without such a rule,
        steps until the end."""
        return spread(run.steps for run in self._arrived)

    @property
    def seconds(self) -> Spread | None:
        """Seconds of training of the same runs."""
        return spread(run.seconds for run in self._arrived)

    @property
    def rate(self) -> Spread | None:
        """Environment steps per second."""
        return spread(run.rate for run in self.counted)

    @property
    def _arrived(self) -> tuple[Result, ...]:
        return tuple(
            run for run in self.runs if run.reached or (run.phase == "Succeeded" and not run.has_goal)
        )


def spread(values: Iterable[float | None]) -> Spread | None:
    """Returns the spread of the finite values, or None if there are none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


def rows(results: Sequence[Result]) -> tuple[Row, ...]:
    """Returns the rows, the best first: by the share of runs that reach the required return, then
    by fewer steps, then by the final return. Rows without a return are last."""
    groups: dict[tuple[object, str], list[Result]] = {}
    for result in results:
        key = (result.alike, json.dumps(result.values, sort_keys=True))
        groups.setdefault(key, []).append(result)
    several = len({result.source for result in results if result.values}) > 1
    return tuple(sorted((_row(group, several) for group in groups.values()), key=_order))


def _row(group: Sequence[Result], several: bool) -> Row:
    runs = tuple(sorted(group, key=lambda run: run.seed))
    values = runs[0].values
    if not values:
        label = _listed(list(dict.fromkeys(run.source for run in runs)))
    else:
        label = f"{runs[0].source}: {titled(values)}" if several else titled(values)
    return Row(label, values, runs)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _order(row: Row) -> tuple[float, float, float]:
    returns = row.mean_return.mean if row.mean_return else -math.inf
    if not row.has_goal or not row.reached or row.steps is None:
        return 0.0, 0.0, -returns
    return -row.reached / len(row.runs), row.steps.mean, -returns
