"""Formats rows as a table for people, as CSV and as JSON. Pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple
from typing import Any

from rltraining.compare.estimates import Estimate, Interval, estimates
from rltraining.compare.result import Result
from rltraining.compare.row import Row, Spread
from rltraining.sweep.names import short_paths, text
from rltraining.units import aligned, plural, score, short

Format = Callable[[float], str]


def tables(rows: Sequence[Row]) -> str:
    """Formats the table of figures, and that of estimates if a row has several returns."""
    return "\n\n".join(filter(None, (table(rows), estimates_table(rows, estimates(rows)))))


def table(rows: Sequence[Row]) -> str:
    """Formats an aligned table. A figure is `mean ± standard deviation`, or only the mean of a
    single run."""
    has_goal = any(row.has_goal for row in rows)
    names, cells = _points(rows)
    header = [*names, "RUNS", "FAILED", *(["GOAL"] if has_goal else []), "RETURN"]
    header += ["STEPS TO GOAL" if has_goal else "STEPS", "SECONDS", "STEPS/S"]
    lines = [header]
    for row, point in zip(rows, cells, strict=True):
        total = len(row.runs)
        lines.append(
            [
                *point,
                str(total)
                if row.succeeded + row.failed == total
                else f"{row.succeeded + row.failed} of {total}",
                str(row.failed or "-"),
                *([f"{row.reached} of {total}" if row.has_goal else "-"] if has_goal else []),
                _return(row.mean_return),
                _figure(row.steps, short),
                _figure(row.seconds, lambda number: f"{number:.1f}"),
                _figure(row.rate, short),
            ]
        )
    return aligned(lines, left=len(names))


def estimates_table(rows: Sequence[Row], found: Sequence[Estimate | None]) -> str:
    """Formats the estimates of rows with several returns as a table. Empty without such rows."""
    if not any(found):
        return ""
    names, cells = _points(rows)
    has_pairs = any(estimate is not None and estimate.difference is not None for estimate in found)
    lines = [[*names, "SEEDS", "IQM OF RETURN", "95% INTERVAL", "P(FIRST IS BETTER)"]]
    lines[0] += ["DIFFERENCE"] * has_pairs
    for row, point, estimate in zip(rows, cells, found, strict=True):
        if estimate is None:
            continue
        iqm, low, high = (score(value, estimate.iqm) for value in (estimate.iqm, estimate.low, estimate.high))
        better = "-" if estimate.improvement is None else f"{estimate.improvement:.2f}"
        difference = "-" if estimate.difference is None else _difference(estimate.difference)
        seeds = str(row.mean_return.n if row.mean_return else 0)
        lines.append([*point, seeds, iqm, f"{low} to {high}", better, *[difference] * has_pairs])
    return aligned(lines, left=len(names))


def as_csv(rows: Sequence[Row], found: Sequence[Estimate | None]) -> str:
    """Formats one line for each point."""
    names, cells = _points(rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names_of_spreads = ("return", "steps", "seconds", "stepsPerSecond")
    spreads = [f"{name}{part}" for name in names_of_spreads for part in ("Mean", "Std")]
    writer.writerow([*(name.lower() if name == NAME else name for name in names),
                     "runs", "succeeded", "failed", "reached", *spreads, *ESTIMATES])  # fmt: skip
    for row, point, estimate in zip(rows, cells, found, strict=True):
        numbers = [
            number
            for spread in (row.mean_return, row.steps, row.seconds, row.rate)
            for number in ((None, None) if spread is None else (spread.mean, spread.std))
        ]
        reached = row.reached if row.has_goal else None
        figures = [*numbers, *_numbers(estimate)]
        writer.writerow([*point, len(row.runs), row.succeeded, row.failed, reached, *figures])
    return out.getvalue()


def as_json(rows: Sequence[Row], found: Sequence[Estimate | None]) -> str:
    """Formats all points with their figures and runs."""
    points = [_point(row, estimate) for row, estimate in zip(rows, found, strict=True)]
    return json.dumps({"points": points}, indent=1) + "\n"


NAME = "RUN"
ESTIMATES = (
    "returnIqm",
    "returnLow",
    "returnHigh",
    "probabilityOfImprovement",
    "differenceMean",
    "differenceLow",
    "differenceHigh",
    "differencePairs",
)
"""Columns of a row's estimate, in the order of ``_numbers``."""


def _numbers(estimate: Estimate | None) -> tuple[float | None, ...]:
    if estimate is None:
        return (None,) * len(ESTIMATES)
    difference = (None,) * 4 if estimate.difference is None else astuple(estimate.difference)
    return (estimate.iqm, estimate.low, estimate.high, estimate.improvement, *difference)


def _points(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Returns headings and cells that identify the rows: their values if all rows have the same
    fields, or else their names."""
    paths = list(rows[0].values)
    if not paths or any(list(row.values) != paths for row in rows):
        return [NAME], [[row.label] for row in rows]
    if len({run.source for row in rows for run in row.runs}) > 1:
        return [NAME], [[row.label] for row in rows]
    short_names = short_paths(paths)
    return [short_names[path] for path in paths], [[text(row.values[path]) for path in paths] for row in rows]


def _difference(found: Interval) -> str:
    mean, low, high = (score(value, found.mean) for value in (found.mean, found.low, found.high))
    return f"{mean} ({low} to {high}), {plural(found.pairs, 'pair')}"


def _return(spread: Spread | None) -> str:
    return "-" if spread is None else _figure(spread, lambda number: score(number, spread.mean))


def _figure(spread: Spread | None, form: Format) -> str:
    if spread is None:
        return "-"
    return form(spread.mean) if spread.std is None else f"{form(spread.mean)} ± {form(spread.std)}"


def _point(row: Row, estimate: Estimate | None) -> dict[str, Any]:
    return {
        "label": row.label,
        "values": dict(row.values),
        "succeeded": row.succeeded,
        "failed": row.failed,
        "reached": row.reached if row.has_goal else None,
        "return": row.mean_return and asdict(row.mean_return),
        "estimate": None if estimate is None else dict(zip(ESTIMATES, _numbers(estimate), strict=True)),
        "steps": row.steps and asdict(row.steps),
        "seconds": row.seconds and asdict(row.seconds),
        "stepsPerSecond": row.rate and asdict(row.rate),
        "runs": [_run(run) for run in row.runs],
    }


def _run(run: Result) -> dict[str, Any]:
    return {
        "name": run.name,
        "seed": run.seed,
        "phase": run.phase,
        "return": run.mean_return,
        "reached": run.reached if run.has_goal else None,
        "steps": run.steps,
        "seconds": run.seconds,
        "stepsPerSecond": run.rate,
    }
