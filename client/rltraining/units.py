"""Numbers as people read them."""

from __future__ import annotations


def clock(seconds: float) -> str:
    """Elapsed time: `00:03`, `12:40`, `1:02:03`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"


def short(number: float) -> str:
    """Three digits and a unit: `251k`, `1.25M`, `87`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit * 0.9995:
            return (
                f"{number / limit:.3g}{unit}"
                if abs(number) < limit * 999.5
                else f"{number / limit:.0f}{unit}"
            )
    return f"{number:.3g}"


def count(number: int) -> str:
    """`412,160`"""
    return f"{number:,}"


def decimal(number: float | None) -> str:
    """One decimal, or a dash where nothing was measured."""
    return "-" if number is None else f"{number:.1f}"


def score(number: float | None, mean: float | None = None) -> str:
    """A return, with more decimals the smaller it is: `213.4`, `-82.15`, `0.953`. A dash for None. A standard deviation
    has the decimals of its `mean`."""
    if number is None:
        return "-"
    size = abs(number if mean is None else mean)
    return f"{number:.{1 if size >= 100 else 2 if size >= 10 else 3}f}"


def plural(number: int, noun: str) -> str:
    """`1 restart`, `2 restarts`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
