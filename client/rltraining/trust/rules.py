"""The rules of `rltrain audit`: what the records of each run must fulfil. Pure.

A rule yields a sentence for each violation. It yields None, once, if the records have nothing that
it could check, so that a rule without evidence is not reported as fulfilled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from rltraining_api import policy_lag
from rltraining_api.job import RLTrainingJob

from rltraining.history import number

ACCOUNTS = {
    "unrolls/pushed": ("unrolls/used", "unrolls/dropped", "unrolls/queued"),
    "gradients/pushed": ("gradients/applied", "gradients/dropped", "gradients/queued"),
    "replay/inserted": ("replay/evicted", "replay/size", "replay/lost"),
    "replay/sampled": (
        "replay/prioritiesApplied",
        "replay/prioritiesStale",
        "replay/prioritiesLost",
        "replay/outstanding",
    ),
}
"""Counters that equal the sum of their parts at all times. See docs/trust.md."""
NEVER_FALL = (
    *("environmentSteps", "updates", "seconds", "episodes"),
    *("unrolls/pushed", "unrolls/used", "unrolls/dropped", "unrolls/stale"),
    *("gradients/pushed", "gradients/applied", "gradients/dropped", "gradients/stale"),
    *("replay/inserted", "replay/evicted", "replay/sampled"),
)
"""Counters. A learner that resumes from a checkpoint removes the later points from the curve."""
LAG = "policyLag/p99"

Point = Mapping[str, Any]


class Records(NamedTuple):
    """What a run has written."""

    job: RLTrainingJob
    """The job with its last status."""
    points: Sequence[Point]
    """The points of progress.jsonl, in their order."""


def accounts(records: Records) -> Iterator[str | None]:
    """Each item was used once, dropped and counted, or waits."""
    found = False
    for point in records.points:
        for whole, parts in ACCOUNTS.items():
            if any(number(point, name) is None for name in (whole, *parts)):
                continue
            found = True
            total = sum(point[part] for part in parts)
            if point[whole] != total:
                terms = " + ".join(f"{part} {point[part]:,.0f}" for part in parts)
                yield f"{_at(point)}: {whole} is {point[whole]:,.0f}, but {terms} = {total:,.0f}"
    if not found:
        yield None


def counters(records: Records) -> Iterator[str | None]:
    """Counters never fall."""
    if len(records.points) < 2:
        yield None
    for old, new in pairwise(records.points):
        for name in NEVER_FALL:
            before, after = number(old, name), number(new, name)
            if before is not None and after is not None and after < before:
                yield f"{_at(new)}: {name} falls from {before:,.10g} to {after:,.10g}"


def lag(records: Records) -> Iterator[str | None]:
    """Nothing was used that is older than maxPolicyLag of the algorithm."""
    limit = policy_lag.limit(records.job)
    measured = [point for point in records.points if number(point, LAG) is not None]
    if limit is None or not measured:
        yield None
        return
    for point in measured:
        if point[LAG] > limit:
            yield f"{_at(point)}: {LAG} is {point[LAG]:g}, but maxPolicyLag is {limit}"


def end(records: Records) -> Iterator[str | None]:
    """The last point of the curve and the status agree on steps and updates."""
    job, points = records
    if job.status.phase != "Succeeded" or not points:
        yield None
        return
    progress = job.status.progress
    for name, value in (("environmentSteps", progress.environment_steps), ("updates", progress.updates)):
        if points[-1].get(name) != value:
            yield f"the curve ends with {name} {points[-1].get(name)}, but the status has {value}"


def updates(records: Records) -> Iterator[str | None]:
    """Each update of asynchronous a3c has applied one gradient."""
    a3c = records.job.spec.algorithm.a3c
    measured = [point for point in records.points if number(point, "gradients/applied") is not None]
    if a3c is None or a3c.aggregate.mode != "Async" or not measured:
        yield None
        return
    for point in measured:
        if (made := number(point, "updates")) != point["gradients/applied"]:
            yield f"{_at(point)}: {made} updates, but gradients/applied is {point['gradients/applied']}"


class Rule(NamedTuple):
    name: str
    check: Callable[[Records], Iterator[str | None]]

    @property
    def about(self) -> str:
        """What must hold, as a clause."""
        sentence = (self.check.__doc__ or "").splitlines()[0].rstrip(".")
        return sentence[0].lower() + sentence[1:]


RULES = (
    Rule("accounts", accounts),
    Rule("counters", counters),
    Rule("lag", lag),
    Rule("updates", updates),
    Rule("end", end),
)


def _at(point: Point) -> str:
    return f"at step {number(point, 'environmentSteps') or 0:,.0f}"
