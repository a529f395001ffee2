"""Shows what `rltrain chaos` did to a run, and how fast the run recovered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rltraining_api.curve import thinned
from rltraining_api.files import read_regular

from rltraining import workdir
from rltraining.history import Row, number
from rltraining.report.figures import POINTS_MAX, Figure
from rltraining.report.svg import Line, draw
from rltraining.trust.audit import Finding
from rltraining.trust.disturbances import Kind, Occurrence, kinds

BYTES_MAX = 64 << 20


@dataclass(frozen=True)
class Disturbances:
    """The section of the page."""

    figures: tuple[Figure, ...]
    kinds: tuple[Kind, ...]
    audit: tuple[Finding, ...]
    left_out: int
    """Older occurrences that are not drawn."""


def read(folder: Path, rows: Sequence[Row]) -> Disturbances | None:
    """Returns the section for a run's folder, or None if `rltrain chaos` has not run there."""
    try:
        record = json.loads(read_regular(folder / workdir.CHAOS_FILE, BYTES_MAX))
        occurrences = [Occurrence(**each) for each in record["occurrences"]]
        shown = occurrences[-POINTS_MAX:]
        return Disturbances(
            figures=(*_over_return(shown, rows), *_recoveries(shown)),
            kinds=tuple(kinds(occurrences)),
            audit=tuple(
                Finding(**each | {"violations": tuple(each["violations"])}) for each in record["audit"]
            ),
            left_out=len(occurrences) - len(shown),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None  # there is no such file, or no program of this version has written it


def _over_return(occurrences: Sequence[Occurrence], rows: Sequence[Row]) -> Sequence[Figure]:
    """Draws the return over the time of day, with marks for the occurrences."""
    shown = [row for row in thinned(rows, POINTS_MAX) if number(row, "time") is not None]
    returns = [number(row, "meanReturn") for row in shown]
    if not occurrences or all(value is None for value in returns):
        return ()
    begin = shown[0]["time"]
    title = "Mean return, while processes are killed"
    svg = draw(
        "chaos-return",
        title,
        [Line("return", [row["time"] - begin for row in shown], returns)],
        x_label="seconds; lines: the learner, ticks: other processes",
        marks=[each.time - begin for each in occurrences if each.role == "learner"],
        ticks=[each.time - begin for each in occurrences if each.role != "learner"],
    )
    return (Figure(title, svg),)


def _recoveries(occurrences: Sequence[Occurrence]) -> Sequence[Figure]:
    """Draws how long each recovery took."""
    lines = []
    for role in sorted({each.role for each in occurrences}):
        those = [each for each in occurrences if each.role == role and each.recovery_seconds is not None]
        if those:
            lines.append(
                Line(role, [each.seconds for each in those], [each.recovery_seconds for each in those])
            )
    if not lines:
        return ()
    title = "Seconds from a kill until the process was ready again"
    return (Figure(title, draw("chaos-recovery", title, lines, x_label="seconds of the run", dots=True)),)
