"""Estimates how certain a comparison is: interquartile means with confidence intervals, probabilities of improvement, and
differences between runs with the same seed.

Agarwal et al. 2021 (https://arxiv.org/abs/2108.13264) recommend the first two for experiments with few seeds.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from rltraining.compare.row import Row
from rltraining.local import is_installed

SEEDS_MIN = 5
"""With fewer seeds, the intervals are too narrow."""
CONFIDENCE = 0.95
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A mean of paired differences with the bounds of its 95% confidence interval, by the percentile bootstrap."""

    mean: float
    low: float
    high: float
    pairs: int


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
    difference: Interval | None = None
    """The return of a run minus the return of the first row's run with the same seed. None for that row itself, and with
    fewer than two such pairs."""


def can_estimate() -> bool:
    """Returns whether scipy is installed. The extra `local` installs it."""
    return is_installed("scipy")


def estimates(rows: Sequence[Row]) -> tuple[Estimate | None, ...]:
    """Returns an estimate for each row with two or more returns, None for other rows and without scipy."""
    if not can_estimate():
        return (None,) * len(rows)
    several = [row for row in rows if len(_returns(row)) > 1]
    found: list[Estimate | None] = []
    for row in rows:
        if row not in several:
            found.append(None)
        elif row is several[0]:
            found.append(estimate(_returns(row)))
        else:
            compared = estimate(_returns(row), _returns(several[0]))
            found.append(replace(compared, difference=difference(row, several[0])))
    return tuple(found)


def _returns(row: Row) -> list[float]:
    return [run.mean_return for run in row.counted if run.mean_return is not None]


def difference(row: Row, first: Row) -> Interval | None:
    """Estimates the mean difference of two rows from pairs of runs with the same seed. None if there are fewer than two."""
    if len(pairs := _pairs(row, first)) < 2:
        return None
    return Interval(*_trimmed_mean(pairs, 0.0), len(pairs))


def pair_counts(rows: Sequence[Row]) -> list[int]:
    """Returns the number of pairs of each difference."""
    several = [row for row in rows if len(_returns(row)) > 1]
    counts = [len(_pairs(row, several[0])) for row in several[1:]]
    return [count for count in counts if count > 1]


def _pairs(row: Row, first: Row) -> list[float]:
    """Returns the differences of the returns for each seed that both rows have."""
    ours, theirs = _by_seed(row), _by_seed(first)
    return [mean - theirs[seed] for seed, mean in ours.items() if seed in theirs]


def _by_seed(row: Row) -> dict[int, float]:
    """Returns the mean return of the runs with each seed."""
    returns: dict[int, list[float]] = {}
    for run in row.counted:
        if run.mean_return is not None:
            returns.setdefault(run.seed, []).append(run.mean_return)
    return {seed: statistics.fmean(found) for seed, found in returns.items()}


def estimate(returns: Sequence[float], first: Sequence[float] = ()) -> Estimate:
    """Returns the estimates of two or more returns, compared with the returns of the first row."""
    from scipy import stats

    # Count the pairs of runs of which the one in the first row is better.
    improvement = None
    if first:
        wins = stats.mannwhitneyu(first, returns, method="asymptotic").statistic
        improvement = float(wins) / (len(first) * len(returns))
    return Estimate(*_trimmed_mean(returns, 0.25), improvement)


def _trimmed_mean(values: Sequence[float], cut: float) -> tuple[float, float, float]:
    """Returns the mean without this part of the values at both ends, and the bounds of its confidence
    interval. Resamples the seeds."""
    from scipy import stats  # takes a second: imported only if there is something to estimate

    mean = partial(stats.trim_mean, proportiontocut=cut)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # equal values have an interval of length 0
        interval = stats.bootstrap(
            (values,), mean, confidence_level=CONFIDENCE, n_resamples=RESAMPLES,
            method="percentile", vectorized=True, rng=0,
        ).confidence_interval  # fmt: skip
    return float(mean(values)), float(interval.low), float(interval.high)
