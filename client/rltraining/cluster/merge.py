"""Reads the lines of several sources in parallel."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

AHEAD = 1000
"""Maximum number of lines that are read in advance."""


class Merge:
    """Yields the lines of all sources in the order of arrival. Each source is read by a daemon thread.

    A source may add others. The exception of a source is raised by the iteration.
    """

    def __init__(self) -> None:
        self._lines: queue.Queue[str | BaseException | None] = queue.Queue(AHEAD)
        """None: a source has ended."""
        self._lock = threading.Lock()
        self._running = 0

    def add(self, source: Callable[[], Iterator[str]]) -> None:
        """Starts reading a source."""
        with self._lock:
            self._running += 1
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def __iter__(self) -> Iterator[str]:
        """Yields lines until all sources have ended."""
        while self._running:
            line = self._lines.get()
            if isinstance(line, str):
                yield line
            elif line is not None:
                raise line
            else:
                with self._lock:
                    self._running -= 1

    def _read(self, source: Callable[[], Iterator[str]]) -> None:
        try:
            for line in source():
                self._lines.put(line)
        except BaseException as error:  # raised by the iteration
            self._lines.put(error)
        else:
            self._lines.put(None)
