"""Prints tables in Markdown, so that they can be pasted into the documentation."""

from __future__ import annotations

import math
from collections.abc import Sequence

PERCENTILES = (10, 50, 90, 99)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for number, row in enumerate(cells):
        print(
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |",
            flush=True,
        )
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def thousands(rate: float) -> str:
    """Formats 250,000 as `250 k`."""
    return f"{rate / 1000:,.0f} k"


def distribution(seconds: Sequence[float]) -> str:
    """Formats the number of times, their PERCENTILES and the longest, such as `30: 0.2/0.3/0.4/0.8/0.8 s`, or `0` for none.

    The p-th percentile is the shortest time that at least p percent of the times do not exceed.
    """
    if not seconds:
        return "0"
    times = sorted(seconds)
    shown = [times[math.ceil(percent / 100 * len(times)) - 1] for percent in PERCENTILES] + times[-1:]
    return f"{len(times)}: {'/'.join(f'{each:.1f}' for each in shown)} s"
