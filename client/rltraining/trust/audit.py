"""Implements `rltrain audit`: checks the records of a run against the rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rltraining_api.files import open_regular

from rltraining import workdir
from rltraining.errors import ClientError, Exit, UsageError
from rltraining.history import LINE_BYTES_MAX, PROGRESS_FILE
from rltraining.printable import say
from rltraining.trust.rules import RULES, Point, Records

SHOWN_MAX = 5
"""Violations of a rule that are printed."""


class Finding(NamedTuple):
    """What an audit found about a rule."""

    rule: str
    about: str
    violations: tuple[str, ...]
    """A sentence for each. Empty if the rule is fulfilled."""
    has_evidence: bool = True
    """Whether the records had something to check."""

    @property
    def state(self) -> str:
        """`ok`, `bad`, or `-` without evidence."""
        return "bad" if self.violations else "ok" if self.has_evidence else "-"


def audit(folder: Path) -> int:
    """Prints a line for each rule, and its violations. Returns the exit code."""
    findings = examine(folder)
    print_findings(findings)
    return Exit.FAILED if any(found.violations for found in findings) else Exit.OK


def print_findings(findings: list[Finding]) -> None:
    width = max(len(found.rule) for found in findings)
    for found in findings:
        unchecked = "" if found.has_evidence else ": no records of it"
        say(f"{found.state:<3}  {found.rule:{width}}  {found.about}{unchecked}")
        for violation in found.violations[:SHOWN_MAX]:
            say(f"     {'':{width}}  {violation}")
        if (more := len(found.violations) - SHOWN_MAX) > 0:
            say(f"     {'':{width}}  and {more:,} more")


def examine(folder: Path) -> list[Finding]:
    """Checks the records of the run in a folder, or of a job in a cluster: a copy of its learner's folder, with the job as
    `status.json`. Raises ClientError if there are none."""
    job = workdir.last_state(folder)
    if job is None and workdir.holds_run(folder):
        raise ClientError(
            f"{folder / workdir.STATUS_FILE}: cannot be read: the run has not started, or the file is damaged"
        )
    if job is None and (folder / PROGRESS_FILE).is_file():
        raise UsageError(
            f"{folder}: has no job in {workdir.STATUS_FILE}: for a job in a cluster, write it there: "
            f"kubectl get rlj NAME -o json > {folder / workdir.STATUS_FILE}"
        )
    if job is None:
        raise UsageError(f"{folder}: holds no run: name the folder of a run, such as runs/first")
    points, unreadable = _points(folder / PROGRESS_FILE)
    records = Records(job, points)
    findings = [Finding("records", "each line of progress.jsonl is a point", tuple(unreadable), bool(points))]
    for rule in RULES:
        found = list(rule.check(records))
        violations = tuple(filter(None, found))
        findings.append(Finding(rule.name, rule.about, violations, has_evidence=None not in found))
    return findings


def _points(path: Path) -> tuple[list[Point], list[str]]:
    """Returns all points of a curve, and a sentence for each line that is none."""
    points: list[Point] = []
    unreadable: list[str] = []
    try:
        for number, line in enumerate(_lines(path), 1):
            if not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
                break  # the last line is being written, or its writer was killed
            try:
                point = json.loads(line)
            except ValueError:
                point = None
            if isinstance(point, dict):
                points.append(point)
            else:
                unreadable.append(f"line {number} is no JSON object")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ClientError(f"{path}: cannot be read: {error.strerror}") from None
    return points, unreadable


def _lines(path: Path) -> Iterator[bytes]:
    with open_regular(path) as file:
        yield from iter(lambda: file.readline(LINE_BYTES_MAX), b"")
