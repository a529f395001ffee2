"""Displays snapshots during a run: a live view on a terminal, lines of text otherwise."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Protocol, TextIO

from rltraining.curve import terminal
from rltraining.plain import (
    event_line,
    final_error,
    phase_line,
    print_line,
    progress_line,
    repeats_error,
)
from rltraining.printable import one_line
from rltraining.snapshot import EventRow, Snapshot

LINE_SECONDS = 2.0
"""Minimum seconds between two lines about progress."""
SAME_SECONDS = 30.0
"""Seconds after which unchanged progress is printed again, as a sign of life in logs."""
CURVE_SECONDS = 1.0
"""Minimum seconds between two drawings of the curve, to leave the CPU to the training."""
CURVE_WIDTH, CURVE_HEIGHT, CURVE_HEIGHT_MIN = 90, 12, 6
OTHER_LINES = 14
"""Lines of the view other than pods and curve."""


class Display(Protocol):
    """Shows a run. `show` is called several times a second."""

    def show(self, snapshot: Snapshot) -> None: ...

    def close(self) -> None:
        """Finishes the output. The last view stays."""


class Plain:
    """Prints phase changes and events immediately, and progress every two seconds if there is
    any. Leaves out the error that ends the job, which the command prints below."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._phase = ""
        self._notice = ""
        self._shown_events: set[EventRow] = set()
        self._next_line = 0.0
        self._said = ""
        self._say_again = 0.0

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.notice != self._notice:
            self._notice = snapshot.notice
            if snapshot.notice:
                self._print(snapshot.notice)
        error = final_error(snapshot)
        for event in snapshot.events:
            if event not in self._shown_events:
                self._shown_events.add(event)
                if not repeats_error(event, error):
                    self._print(event_line(event))
        if snapshot.phase != self._phase:
            self._phase = snapshot.phase
            self._say(phase_line(snapshot), snapshot.elapsed)
        elif snapshot.elapsed >= self._next_line:
            line = progress_line(snapshot)
            if _without_clock(line) != self._said or snapshot.elapsed >= self._say_again:
                self._say(line, snapshot.elapsed)

    def close(self) -> None:
        pass

    def _say(self, line: str, elapsed: float) -> None:
        self._said = _without_clock(line)
        self._next_line, self._say_again = elapsed + LINE_SECONDS, elapsed + SAME_SECONDS
        self._print(line)

    def _print(self, line: str) -> None:
        print_line(one_line(line), self._out)


def _without_clock(line: str) -> str:
    return line.partition(" ")[2]


class Picture:
    """The live view (see `view`), redrawn in place. Losing the terminal does not stop the
    training."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()
        self._curve = ""
        self._next_curve = 0.0
        self._prepared = False

    def show(self, snapshot: Snapshot) -> None:
        from rltraining.view import render

        if (now := time.monotonic()) >= self._next_curve:
            self._next_curve = now + CURVE_SECONDS
            self._curve = self._draw(snapshot)
        with suppress(OSError):
            self._live.update(render(snapshot, curve=self._curve), refresh=True)
        if not self._prepared:
            self._prepared = True
            import plotext  # noqa: F401 - takes half a second while the first processes start

    def close(self) -> None:
        with suppress(OSError):
            self._live.stop()

    def _draw(self, snapshot: Snapshot) -> str:
        """Draws the curve as high as the window allows, or returns an empty string."""
        from rltraining.view import PODS_SHOWN

        free = self._console.height - OTHER_LINES - min(len(snapshot.pods), PODS_SHOWN + 1)
        height = min(CURVE_HEIGHT, free)
        if height < CURVE_HEIGHT_MIN or not self._console.encoding.startswith("utf"):
            return ""
        return terminal(snapshot.status.curve, width=min(CURVE_WIDTH, self._console.width - 1), height=height)


def choose(out: TextIO, *, plain: bool) -> Display:
    """Returns the live view if the terminal supports it, and lines otherwise."""
    if plain or not out.isatty() or os.environ.get("TERM") == "dumb":
        return Plain(out)
    return Picture()
