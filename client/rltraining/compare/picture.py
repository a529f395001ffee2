"""Draws rows: for each point the mean over its seeds as a curve, and the range as a band."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rltraining.compare.band import band
from rltraining.compare.row import Row
from rltraining.errors import UsageError
from rltraining.units import short

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The palette of Okabe and Ito, which suits colour-blind readers.
https://jfly.uni-koeln.de/color/"""
LINES = ("-", "--", ":")
SHOWN = len(COLOURS) * 2
"""Maximum number of distinguishable curves."""
FORMATS = (".png", ".svg", ".pdf")


def check_format(path: Path) -> None:
    """Raises UsageError if the suffix is not supported."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--output {path}: must end with {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")


def draw(rows: Sequence[Row], path: Path) -> bool:
    """Draws the best rows, in the order of the table. Returns False without drawing if no run has a
    point.

    Raises OSError.
    """
    from matplotlib.figure import Figure  # takes seconds: imported only if there is a curve

    bands = [(row, found) for row in rows if (found := band([run.curve for run in row.counted]))]
    if not bands:
        return False
    figure = Figure(figsize=(9, 5.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    for i, (row, curve) in enumerate(bands[:SHOWN]):
        colour, line = COLOURS[i % len(COLOURS)], LINES[i // len(COLOURS)]
        seeds = len([run for run in row.counted if run.curve])
        label = row.label if seeds == 1 else f"{row.label} ({seeds} seeds)"
        axes.plot(curve.steps, curve.mean, color=colour, linestyle=line, linewidth=1.8, label=label)
        if seeds > 1:
            axes.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    best = f", the best {SHOWN} of {len(bands)}" if len(bands) > SHOWN else ""
    titles = dict.fromkeys(run.title for row in rows for run in row.runs)
    axes.set_title(f"{next(iter(titles)) if len(titles) == 1 else 'comparison'}{best}")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("mean return of training episodes")
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    figure.savefig(path)
    return True
