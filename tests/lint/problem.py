"""A problem that a check reports, with path and line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A problem in one line of a file."""

    path: str
    """Relative to the repository's root."""
    line: int
    text: str
    """The problem and the remedy."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def line_of(text: str, part: str) -> int:
    """Returns the number of the line in which `part` first begins, or 1 if `text` does not contain it."""
    return text.count("\n", 0, max(0, text.find(part))) + 1
