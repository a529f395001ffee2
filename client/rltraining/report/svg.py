"""Draws one diagram as SVG that is embedded in a page and uses its colours."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rltraining.units import short

NAN = float("nan")
COLOURS = {
    "#a00001": "var(--line-1)",
    "#a00002": "var(--line-2)",
    "#a00003": "var(--line-3)",
    "#a00004": "var(--line-4)",
    "#b00001": "var(--ink)",
    "#b00002": "var(--grid)",
    "#b00003": "var(--faint)",
}
"""Maps the colours of the drawing to variables of the page, which has a light and a dark mode."""
LINES = tuple(COLOURS)[:4]
INK, GRID, FAINT = tuple(COLOURS)[4:]
DASHES = ("-", "--", "-.", ":")
"""Makes lines distinguishable without colours, too."""
DOTS_MAX = 30
"""Maximum number of points that are drawn as dots."""
THICK_MAX = 150
"""Maximum points of a thick line, since longer lines may oscillate."""
SIZE = (5.2, 2.9)
"""Inches, as large as on a phone."""
MARGINS = {"left": 0.15, "bottom": 0.18, "right": 0.95}
"""Fractions of the width and height. A label on the left has room for nine characters."""


@dataclass(frozen=True)
class Line:
    """A line with x and y values. None is a missing value."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]

    @property
    def values(self) -> list[float]:
        return [value for value in self.y if value is not None]


def draw(
    name: str,
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    goal: float | None = None,
    marks: Sequence[float] = (),
    ticks: Sequence[float] = (),
    dots: bool = False,
) -> str:
    """Draws lines, with a horizontal line at `goal` and vertical ones at `marks`.

    Args:
        name: Unique in the page.
        title: For screen readers.
        ticks: Where short upright lines stand on the x axis.
        dots: Whether to draw the points without lines between them.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 9,
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "grid.color": GRID,
        "legend.frameon": False,
        "text.parse_math": False,  # names are chosen by the user
    }
    with rc_context(style):
        # Matplotlib's own layouts take as long as the drawing itself.
        figure = Figure(figsize=SIZE)
        figure.subplots_adjust(**MARGINS, top=0.84 if len(lines) > 1 else 0.95)
        axes = figure.subplots()
        _plot(axes, lines, goal, marks, dots=dots)
        axes.plot(ticks, [0.03] * len(ticks), transform=axes.get_xaxis_transform(), color=LINES[1], marker="|",
                  markersize=7, linestyle="none")  # fmt: skip
        axes.set_xlabel(x_label)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _for_page(file.getvalue(), name, title, _described(lines, x_label))


def _plot(
    axes: Any, lines: Sequence[Line], goal: float | None, marks: Sequence[float], *, dots: bool
) -> None:
    for mark in marks:
        axes.axvline(mark, color=FAINT, linewidth=1, linestyle=":")
    for line, colour, dashes in zip(lines, LINES, DASHES, strict=False):
        y = [NAN if value is None else value for value in line.y]
        points = len(line.values)
        axes.plot(line.x, y, color=colour, linestyle="none" if dots else dashes,
                  linewidth=1.6 if points <= THICK_MAX else 1.1, marker="o" if dots or points <= DOTS_MAX else None,
                  markersize=3, label=line.name)  # fmt: skip
    if goal is not None:
        axes.axhline(goal, color=FAINT, linewidth=1, linestyle="--")
        axes.annotate(f"goal {goal:g}", (0, goal), xycoords=("axes fraction", "data"), xytext=(4, -11),
                      textcoords="offset points", color=INK)  # fmt: skip
    if all(value == 0 for line in lines for value in line.values):
        axes.set_ylim(-0.05, 1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}" if abs(value) < 1e4 else short(value))
    axes.grid(linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(lines) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(0, 1.2), ncols=len(lines), handlelength=2.4)


def _described(lines: Sequence[Line], x_label: str) -> str:
    """Describes the diagram in words."""
    parts = []
    for line in lines:
        values = line.values
        name = f"{line.name}: " if len(lines) > 1 else ""
        parts.append(
            f"{name}from {short(values[0])} to {short(values[-1])}, lowest {short(min(values))}, "
            f"highest {short(max(values))}, {len(values)} points"
        )
    return f"Over {x_label}: " + "; ".join(parts) + "."


def _for_page(svg: str, name: str, title: str, description: str) -> str:
    """Removes what only a file needs, makes names unique in the page, and uses the page's
    colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r" font-family: [^;\"]*;", "", svg)
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", svg)
    svg = svg.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    for colour, variable in COLOURS.items():
        svg = svg.replace(colour, variable)
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None, "matplotlib writes a viewBox"
    inner = svg[svg.index(">") + 1 :]
    return (
        f'<svg {box[0]} role="img" aria-labelledby="{name}-title {name}-description">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-description">{escape(description)}</desc>{inner}'
    )
