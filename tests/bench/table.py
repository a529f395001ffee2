"""Prints tables in Markdown, so that they can be pasted into the documentation."""

from __future__ import annotations

from collections.abc import Sequence


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
