"""Several iterators read at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
AHEAD = 1000
"""Items that are read before they are wanted."""


class Merge(Generic[T]):
    """Each source is read in a thread of its own, which ends with the process; items come in the order in which they arrive.

    A source may add others. An exception of one is raised where the items are read.
    """

    def __init__(self) -> None:
        self._items: queue.Queue[tuple[str, T | BaseException | None]] = queue.Queue(AHEAD)
        self._lock = threading.Lock()
        self._running = 0

    def add(self, source: Callable[[], Iterator[T]]) -> None:
        """Begin to read."""
        with self._lock:
            self._running += 1
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def __iter__(self) -> Iterator[T]:
        """Until all sources are at their end."""
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
        except BaseException as error:  # told by the reader
            self._items.put(("end", error))
        else:
            self._items.put(("end", None))
