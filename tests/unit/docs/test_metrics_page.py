"""The page on metrics has a row for each that is exported, and none that is not."""

from __future__ import annotations

import pytest
from docs_pages import pages
from exported_metrics import Exported, of_a_process, of_members, of_the_operator

PAGE = "docs/metrics.md"


def row(name: str, one: Exported) -> str:
    """As it is to stand in the page."""
    labels = ", ".join(f"`{label}`" for label in sorted(one.labels))
    cells = [f"`{name}`", one.kind, labels, one.help]
    curves = ", ".join(f"`{curve}`" for curve in one.curves)
    return f"| {' | '.join(cells)} |" + (f" {curves} |" if one.curves else "")


ROWS = [
    row(name, one)
    for exported in (of_members(), of_a_process(), of_the_operator())
    for name, one in exported.items()
]


@pytest.mark.parametrize("wanted", ROWS, ids=lambda wanted: wanted.split("`")[1])
def test_a_metric_has_its_row(wanted: str) -> None:
    assert wanted in pages()[PAGE].splitlines(), f"{PAGE} lacks the row\n{wanted}"


def test_a_row_has_its_metric() -> None:
    rows = [line for line in pages()[PAGE].splitlines() if line.startswith(("| `rltraining_", "| `process_"))]
    assert sorted(rows) == sorted(ROWS)
