"""Prints every problem as `path:line: problem: remedy`. Exits with 1 if there is any."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from tests.lint import (
    chart,
    chart_metadata,
    code,
    commands,
    distributions,
    hashes,
    images,
    monitoring,
    pages,
    vocabulary,
)
from tests.lint.problem import Problem

MODULES = (
    code,
    pages,
    commands,
    monitoring,
    chart,
    chart_metadata,
    images,
    hashes,
    distributions,
    vocabulary,
)


def report(checks: Iterable[Callable[[], Iterable[Problem]]]) -> int:
    """Runs the checks and prints their problems. Returns the exit code."""
    problems = {problem for check in checks for problem in check()}
    for problem in sorted(problems, key=lambda each: (each.path, each.line)):
        print(problem)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(report(check for module in MODULES for check in module.CHECKS))
