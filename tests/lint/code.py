"""A file of code is short enough to read, and the client prints in one way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs_pages import ROOT
from tests.lint.problem import Problem

LINES_MAX = 400
FOLDERS = ("crds", "operator", "trainer_image", "client", "charts", "tests")


def long_files(root: Path = ROOT) -> Iterator[Problem]:
    """Finds files of code with more than `LINES_MAX` lines."""
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            count = len(path.read_text().splitlines())
            if count > LINES_MAX:
                name = str(path.relative_to(root))
                yield Problem(name, LINES_MAX, f"{count} lines: give the file's second idea its own file")


PRINTS_ITSELF = {
    "printable.py": "is the way to print",
    "plain.py": "lines that a full disk does not stop",
    "cluster/logs.py": "has the rule for logs",
    "cluster/plugin.py": "completions for kubectl, which reads them",
}
"""Files of the client, and why each of them calls `print` or `typer.echo`."""
PRINT = re.compile(r"(?<![\w.])(print|typer\.echo)\((?!job\.status)")


def unfiltered_output(root: Path = ROOT) -> Iterator[Problem]:
    """Finds output of the client through which control characters of others would reach a terminal."""
    folder = root / "client" / "rltraining"
    for path in folder.rglob("*.py"):
        if str(path.relative_to(folder)) in PRINTS_ITSELF:
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if PRINT.search(line):
                yield Problem(str(path.relative_to(root)), number, "print with rltraining.printable.say")


CHECKS = (long_files, unfiltered_output)
