"""A file of code is short enough to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.docs_pages import ROOT
from tests.lint.problem import Problem

LINES_MAX = 400
FOLDERS = ("crds", "operator", "trainer_image", "client", "tests")


def long_files(root: Path = ROOT) -> Iterator[Problem]:
    """Finds files of code with more than `LINES_MAX` lines."""
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            count = len(path.read_text().splitlines())
            if count > LINES_MAX:
                name = str(path.relative_to(root))
                yield Problem(name, LINES_MAX, f"{count} lines: give the file's second idea its own file")


CHECKS = (long_files,)
