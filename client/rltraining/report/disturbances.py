"""Shows what `rltrain chaos` did to a run, and how fast the run recovered."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltraining_api.curve import thinned

from rltraining import workdir
from rltraining.history import Row, number
from rltraining.report.figures import POINTS_MAX, Figure
from rltraining.report.svg import Line, draw
from rltraining.units import plural


@dataclass(frozen=True)
class Kind:
    """One kind of disturbance, such as kills of the learner."""

    name: str
    count: str
    recovery: str


@dataclass(frozen=True)
class Rule:
    """A rule of the audit, and what was found."""

    name: str
    about: str
    state: str
    """`ok`, `bad` or `-`."""
    violations: tuple[str, ...]


@dataclass(frozen=True)
class Disturbances:
    """The section of the page."""

    figures: tuple[Figure, ...]
    kinds: tuple[Kind, ...]
    rules: tuple[Rule, ...]


def read(folder: Path, rows: Sequence[Row]) -> Disturbances | None:
    """Returns the section for a run's folder, or None if `rltrain chaos` has not run there."""
    try:
        record = json.loads((folder / workdir.CHAOS_FILE).read_text(encoding="utf-8"))
        occurrences, audit = record["occurrences"], record["audit"]
        return Disturbances(_figures(occurrences, rows), _kinds(occurrences), tuple(map(_rule, audit)))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # none, or written by another version


def _figures(occurrences: Sequence[Mapping[str, Any]], rows: Sequence[Row]) -> tuple[Figure, ...]:
    figures = []
    # The return over the seconds since the first point.
    shown = [row for row in thinned(rows, POINTS_MAX) if number(row, "time") is not None]
    returns = [number(row, "meanReturn") for row in shown]
    if occurrences and any(value is not None for value in returns):
        begin = shown[0]["time"]
        learner = [each["time"] - begin for each in occurrences if each["role"] == "learner"]
        others = [each["time"] - begin for each in occurrences if each["role"] != "learner"]
        title = "Mean return, while processes are killed"
        svg = draw(
            "chaos-return",
            title,
            [Line("return", [row["time"] - begin for row in shown], returns)],
            x_label="seconds; lines: the learner, ticks: other processes",
            marks=learner,
            ticks=others,
        )
        figures.append(Figure(title, svg))
    # The recoveries.
    lines = []
    for role in sorted({each["role"] for each in occurrences}):
        those = [
            each for each in occurrences if each["role"] == role and each["recovery_seconds"] is not None
        ]
        if those:
            seconds = [each["recovery_seconds"] for each in those]
            lines.append(Line(role, [each["seconds"] for each in those], seconds))
    if lines:
        title = "Seconds from a kill until the process was ready again"
        figures.append(
            Figure(title, draw("chaos-recovery", title, lines, x_label="seconds of the run", dots=True))
        )
    return tuple(figures)


def _kinds(occurrences: Sequence[Mapping[str, Any]]) -> tuple[Kind, ...]:
    kinds = []
    for action, role in sorted({(each["action"], each["role"]) for each in occurrences}):
        those = [each for each in occurrences if (each["action"], each["role"]) == (action, role)]
        times = [each["recovery_seconds"] for each in those if each["recovery_seconds"] is not None]
        recovery = f"{statistics.median(times):.1f} s (median), {max(times):.1f} s (longest)" if times else ""
        kinds.append(Kind(f"{action} {role}", plural(len(those), "time"), recovery))
    return tuple(kinds)


def _rule(finding: Mapping[str, Any]) -> Rule:
    violations = tuple(finding["violations"])
    state = "bad" if violations else "ok" if finding["has_evidence"] else "-"
    return Rule(finding["rule"], finding["about"], state, violations)
