"""Draws docs/images/benchmarks.svg, part of ``make pictures``, from the first table of docs/benchmarks.md.

python docs/benchmarks.py
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "benchmarks.md"
IMAGE = HERE / "images" / "benchmarks.svg"
OURS = "this project"
TIME = r"(?:over )?[\d.]+"
ROW = re.compile(
    rf"^\| (?P<name>[^|]+?) +\| (?P<median>{TIME}) \((?P<all>{TIME}(?:, {TIME})*)\) +\|", re.MULTILINE
)
"""A library with its median and all its times in seconds. *over 120*: not solved after 120 s."""

WIDTH, ROW_HEIGHT, TOP, LEFT, RIGHT = 760, 36, 40, 250, 120
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
TEXT, DARK, PEER, OWN = "#57606a", "#b1bac4", "#8b919c", "#0f9d8f"
"""Colours of text on white and on dark grey, and of dots that are visible on both."""


@dataclass(frozen=True)
class Times:
    name: str
    label: str
    """The median, as in the table."""
    median: float
    all: tuple[float, ...]


def main() -> None:
    IMAGE.write_text(draw(read(PAGE.read_text())))
    print(IMAGE.relative_to(HERE.parent))


def read(page: str) -> list[Times]:
    """Returns the rows of the first table of times, the fastest first."""
    table = page[page.index("| s to solve: median (all)") :].partition("\n\n")[0]
    rows = [
        Times(
            row["name"], row["median"], _seconds(row["median"]), tuple(map(_seconds, row["all"].split(", ")))
        )
        for row in ROW.finditer(table)
    ]
    if not rows:
        raise SystemExit(f"{PAGE.name}: its first table has no times")
    return sorted(rows, key=lambda row: row.median)


def _seconds(time: str) -> float:
    return float(time.removeprefix("over "))


def draw(rows: list[Times]) -> str:
    """Returns an SVG with a dot for each seed and a line for each median, on a logarithmic axis."""
    bottom = TOP + ROW_HEIGHT * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" width="{WIDTH}"'
        f' height="{bottom + 30}" font-family="Helvetica, Arial, sans-serif" font-size="14" fill="{TEXT}">',
        f"  <style>@media (prefers-color-scheme: dark) {{ svg {{ fill: {DARK}; }} }}</style>",
        f'  <text x="{LEFT}" y="18">seconds to solve CartPole-v1: each seed (dot) and the median (line)</text>',
    ]
    for tick in TICKS:
        parts.append(
            f'  <path d="M{x(tick):.1f} {TOP - 8} V{bottom}" stroke="{TEXT}" stroke-opacity=".25"/>'
            f'<text x="{x(tick):.1f}" y="{bottom + 18}" text-anchor="middle" font-size="12">{tick:g}</text>'
        )
    for number, row in enumerate(rows):
        parts += _row(row, TOP + ROW_HEIGHT * (number + 0.5))
    return "\n".join([*parts, "</svg>", ""])


def _row(row: Times, y: float) -> list[str]:
    ours = row.name.startswith(OURS)
    color, weight = (OWN, ' font-weight="bold"') if ours else (PEER, "")
    end = f'x="{x(max(row.all)) + 12:.1f}" y="{y + 5:.1f}"'
    return [
        f'  <text x="{LEFT - 16}" y="{y + 5:.1f}" text-anchor="end"{weight}>{escape(row.name)}</text>',
        *(
            f'  <circle cx="{x(seconds):.1f}" cy="{y:.1f}" r="5" fill="{color}" fill-opacity=".7"/>'
            for seconds in row.all
        ),
        f'  <path d="M{x(row.median):.1f} {y - 11:.1f} V{y + 11:.1f}" stroke="{color}" stroke-width="3"/>',
        f"  <text {end}{weight}>{row.label} s</text>",
    ]


def x(seconds: float) -> float:
    """Returns the horizontal position of a time."""
    low, high = math.log(TICKS[0]), math.log(TICKS[-1])
    return LEFT + (WIDTH - RIGHT - LEFT) * (math.log(seconds) - low) / (high - low)


if __name__ == "__main__":
    main()
