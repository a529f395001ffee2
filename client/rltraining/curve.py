"""Draws the learning curve, for the terminal and as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rltraining_api.curve import CurvePoint

from rltraining.units import short
from rltraining.whole_file import whole

TICKS = 4
CURVE_FILE = "learning_curve.png"
COLOUR = "#1f6feb"


def terminal(points: Sequence[CurvePoint], *, width: int, height: int) -> str:
    """Draws the return over steps as `height` lines of `width` characters. Empty with fewer than
    two points."""
    if len(points) < 2:
        return ""
    import plotext  # takes half a second, which is only needed for a terminal

    steps, returns = [point.environment_steps for point in points], [point.mean_return for point in points]
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, height)
    figure.draw(figure.signal(steps, returns, marker="braille").lines())
    for axis, side, values in (("x", "lower", steps), ("y", "left", returns)):
        ticks = _ticks(min(values), max(values))
        figure.ruler(axis, side).ticks(ticks, [short(tick) for tick in ticks])
    return str(figure.build().string(colorless=True)).rstrip()


def _ticks(low: float, high: float) -> list[float]:
    """Returns evenly spaced ticks, including both ends."""
    return [low + (high - low) * i / (TICKS - 1) for i in range(TICKS)] if high > low else [low]


def png(points: Sequence[CurvePoint], path: Path, *, title: str, goal: float | None = None) -> None:
    """Draws the mean return over environment steps and over seconds, side by side. `goal` is drawn
    as a line. Raises OSError."""
    from matplotlib.figure import Figure  # takes seconds: imported only at the end of a run

    figure = Figure(figsize=(11, 4.2), dpi=120, layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(1, 2, sharey=True)
    returns = [point.mean_return for point in points]
    _panel(axes[0], [point.environment_steps for point in points], returns, "environment steps", goal)
    _panel(axes[1], [point.seconds for point in points], returns, "seconds of training", goal)
    axes[0].xaxis.set_major_formatter(lambda value, _: short(value))
    axes[0].set_ylabel("mean return of training episodes")
    with whole(path) as fresh:
        figure.savefig(fresh)


def _panel(axes: Any, x: Sequence[float], y: Sequence[float], label: str, goal: float | None) -> None:
    axes.plot(x, y, color=COLOUR, linewidth=1.8)
    if goal is not None:
        axes.axhline(goal, color="grey", linewidth=1, linestyle="--")
        axes.annotate(f"goal {goal:g}", (0, goal), xycoords=("axes fraction", "data"), xytext=(4, -12),
                      textcoords="offset points", color="grey")  # fmt: skip
    axes.set_xlabel(label)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
