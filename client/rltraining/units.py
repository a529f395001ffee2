"""Formats numbers and tables for people."""

from __future__ import annotations

from collections.abc import Sequence


def clock(seconds: float) -> str:
    """Formats elapsed time, such as `00:03`, `12:40` or `1:02:03`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"


def short(number: float) -> str:
    """Formats a number with three digits and a unit, such as `251k`, `1.25M` or `87`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit * 0.9995:
            return (
                f"{number / limit:.3g}{unit}"
                if abs(number) < limit * 999.5
                else f"{number / limit:.0f}{unit}"
            )
    return f"{number:.3g}"


def count(number: int) -> str:
    """Formats a count, such as `412,160`."""
    return f"{number:,}"


def decimal(number: float | None) -> str:
    """Formats a number with one decimal, or a dash for None."""
    return "-" if number is None else f"{number:.1f}"


def score(number: float | None, mean: float | None = None) -> str:
    """Formats a return, with more decimals for smaller values, such as `213.4`, `-82.15` or
    `0.953`. A dash for None. A standard deviation has the decimals of its `mean`."""
    if number is None:
        return "-"
    size = abs(number if mean is None else mean)
    return f"{number:.{1 if size >= 100 else 2 if size >= 10 else 3}f}"


def plural(number: int, noun: str) -> str:
    """Formats a number with a noun, such as `1 restart` or `2 restarts`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def aligned(rows: Sequence[Sequence[str]], *, left: int = 0, gap: str = "   ") -> str:
    """Formats rows of cells as a table. Aligns the first `left` columns to the left, and figures to the
    right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        gap.join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
