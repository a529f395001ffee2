"""Estimates how certain a comparison is: interquartile means with confidence intervals, and probabilities of improvement.

Agarwal et al. 2021 (https://arxiv.org/abs/2108.13264) recommend both for experiments with few seeds.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rltraining.compare.row import Row
from rltraining.local import is_installed

SEEDS_MIN = 5
"""With fewer seeds, the intervals are too narrow."""
CONFIDENCE = 0.95
RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """Estimates of the returns of further runs with other seeds and otherwise the settings of a row."""

    iqm: float
    """Interquartile mean: the mean without the lowest and the highest quarter."""
    low: float
    high: float
    """Bounds of the 95% confidence interval of the interquartile mean, by the percentile bootstrap."""
    improvement: float | None
    """Probability that a run of the first row with several returns has a higher one than a run of this row. Ties count
    half. None for that row itself."""


def can_estimate() -> bool:
    """Returns whether scipy is installed. The extra `local` installs it."""
    return is_installed("scipy")


def estimates(rows: Sequence[Row]) -> tuple[Estimate | None, ...]:
    """Returns an estimate for each row with two or more returns, None for other rows and without scipy."""
    if not can_estimate():
        return (None,) * len(rows)
    several = [returns if len(returns := _returns(row)) > 1 else [] for row in rows]
    first = next((i for i, returns in enumerate(several) if returns), None)
    return tuple(
        estimate(returns, several[first] if first is not None and i > first else []) if returns else None
        for i, returns in enumerate(several)
    )


def _returns(row: Row) -> list[float]:
    return [run.mean_return for run in row.counted if run.mean_return is not None]


def estimate(returns: Sequence[float], first: Sequence[float] = ()) -> Estimate:
    """Returns the estimates of two or more returns, compared with the returns of the first row."""
    from scipy import stats  # takes a second: imported only if there is something to estimate

    def interquartile_mean(values: Any, axis: int) -> Any:
        return stats.trim_mean(values, 0.25, axis=axis)

    # Resample the seeds.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # equal returns have an interval of length 0
        interval = stats.bootstrap(
            (returns,), interquartile_mean, confidence_level=CONFIDENCE, n_resamples=RESAMPLES,
            method="percentile", vectorized=True, rng=0,
        ).confidence_interval  # fmt: skip
    # Count the pairs of runs of which the one in the first row is better.
    improvement = None
    if first:
        wins = stats.mannwhitneyu(first, returns, method="asymptotic").statistic
        improvement = float(wins) / (len(first) * len(returns))
    iqm = float(interquartile_mean(returns, 0))
    return Estimate(iqm, float(interval.low), float(interval.high), improvement)
