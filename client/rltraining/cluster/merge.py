"""Reads several iterators in parallel."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
AHEAD = 1000
"""Maximum number of items that are read in advance."""


class Merge(Generic[T]):
    """Yields the items of all sources in the order of arrival. Each source is read by a daemon
    thread.

    A source may add others. The exception of a source is raised by the iteration.
    """

    def __init__(self) -> None:
        self._items: queue.Queue[tuple[str, T | BaseException | None]] = queue.Queue(AHEAD)
        self._lock = threading.Lock()
        self._running = 0

    def add(self, source: Callable[[], Iterator[T]]) -> None:
        """Starts reading a source."""
        with self._lock:
            self._running += 1
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def __iter__(self) -> Iterator[T]:
        """Yields items until all sources have ended."""
        while self._running:
            kind, item = self._items.get()
            if kind == "item":
                yield item  # type: ignore[misc]
            elif isinstance(item, BaseException):
                raise item
            else:
                with self._lock:
                    self._running -= 1

    def _read(self, source: Callable[[], Iterator[T]]) -> None:
        try:
            for item in source():
                self._items.put(("item", item))
        except BaseException as error:  # raised by the iteration
            self._items.put(("end", error))
        else:
            self._items.put(("end", None))
