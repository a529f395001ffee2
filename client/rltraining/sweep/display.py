"""Displays the state of a sweep: a live table on a terminal, lines of text otherwise."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Protocol, TextIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rltraining.plain import print_line
from rltraining.printable import one_line
from rltraining.sweep.snapshot import OVER, WAITING, Row, SweepSnapshot
from rltraining.units import clock, count, score
from rltraining.view import PHASE_STYLES

REFRESH_SECONDS = 0.25
LINE_SECONDS = 10.0
"""Minimum seconds between two lines about a run's progress."""
OTHER_LINES = 6
"""Lines of the view other than rows."""


class SweepDisplay(Protocol):
    """Shows a sweep. `show` may be called often."""

    def show(self, snapshot: SweepSnapshot) -> None: ...

    def close(self) -> None:
        """Finishes the output. The last view stays."""


class Lines:
    """Prints a line when a run's phase changes, and periodically about its progress."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._phases: dict[str, str] = {}
        self._next: dict[str, float] = {}
        self._notice = ""

    def show(self, snapshot: SweepSnapshot) -> None:
        if snapshot.notice != self._notice:
            self._notice = snapshot.notice
            self._print(snapshot.notice)
        for row in snapshot.rows:
            changed = self._phases.setdefault(row.name, WAITING) != row.phase
            due = row.phase == "Running" and snapshot.elapsed >= self._next.get(row.name, 0.0)
            if changed or due:
                self._phases[row.name] = row.phase
                self._next[row.name] = snapshot.elapsed + LINE_SECONDS
                self._print(line(row, snapshot.elapsed))

    def close(self) -> None:
        pass

    def _print(self, text: str) -> None:
        print_line(one_line(text), self._out)


class LiveTable:
    """The table, redrawn in place. Losing the terminal does not stop the runs."""

    def __init__(self) -> None:
        from rich import live
        from rich.console import Console

        self._console = Console()
        self._live = live.Live(console=self._console, auto_refresh=False)
        self._live.start()
        self._next = 0.0
        self._last: SweepSnapshot | None = None

    def show(self, snapshot: SweepSnapshot) -> None:
        self._last = snapshot
        if (now := time.monotonic()) >= self._next:
            self._next = now + REFRESH_SECONDS
            self._draw()

    def close(self) -> None:
        self._draw()
        with suppress(OSError):
            self._live.stop()

    def _draw(self) -> None:
        if self._last is not None:
            rows_max = max(3, self._console.height - OTHER_LINES)
            with suppress(OSError):
                self._live.update(render(self._last, rows_max), refresh=True)


def choose(out: TextIO, *, plain: bool) -> SweepDisplay:
    """Returns the live table if the terminal supports it, and lines otherwise."""
    if plain or not out.isatty() or os.environ.get("TERM") == "dumb":
        return Lines(out)
    return LiveTable()


def line(row: Row, elapsed: float) -> str:
    """Formats a row, such as `00:12  learningRate=0.0001,seed=0  Running    412,160 steps  return
    213.4`."""
    parts = [clock(elapsed), row.name, f"{row.phase:<9}"]
    if row.steps:
        parts += [f"{count(row.steps)} steps", f"return {score(row.mean_return)}"]
    return "  ".join([*parts, row.why]).rstrip()


def render(snapshot: SweepSnapshot, rows_max: int) -> Group:
    """Renders the whole view, with at most `rows_max` rows."""
    head = Text(one_line(snapshot.title), style="bold", no_wrap=True, overflow="ellipsis")
    head.append(f"  {snapshot.counts}  {clock(snapshot.elapsed)}", style="not bold")
    parts: list[RenderableType] = [head, "", _table(snapshot, rows_max)]
    if snapshot.notice:
        parts += ["", Text(one_line(snapshot.notice), style="bold yellow")]
    return Group(*parts)


def _table(snapshot: SweepSnapshot, rows_max: int) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", expand=True)
    names = list(snapshot.rows[0].point)
    for name in names:
        table.add_column(Text(name), no_wrap=True)
    table.add_column("PHASE", no_wrap=True)
    for name in ("STEPS", "RETURN", "TIME"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("WHY", no_wrap=True, overflow="ellipsis", ratio=1)  # the remaining width
    shown = _worth_showing(snapshot.rows, rows_max)
    for row in shown:
        waits = row.phase == WAITING
        table.add_row(
            *(Text(one_line(row.point.get(name, ""))) for name in names),
            Text(row.phase, style=PHASE_STYLES.get(row.phase, "dim" if waits else "")),
            count(row.steps) if row.steps else "-",
            score(row.mean_return),
            "-" if row.seconds is None else clock(row.seconds),
            Text(one_line(row.why)),
            style="dim" if waits else "",
        )
    if hidden := len(snapshot.rows) - len(shown):
        table.add_row(f"and {hidden} more", style="dim")
    return table


def _worth_showing(rows: tuple[Row, ...], rows_max: int) -> tuple[Row, ...]:
    """Returns all rows, or `rows_max` consecutive rows that start a little before the first
    unfinished run."""
    if len(rows) <= rows_max:
        return rows
    first = next((i for i, row in enumerate(rows) if row.phase not in OVER), len(rows))
    begin = max(0, min(first - rows_max // 2, len(rows) - rows_max))
    return rows[begin : begin + rows_max]
