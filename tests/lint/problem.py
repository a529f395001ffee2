"""What a check reports, and where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in one line."""

    path: str
    """Relative to the repository's root."""
    line: int
    text: str
    """What is wrong, and what to do about it."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def line_of(text: str, part: str) -> int:
    """Returns the number of the line in which `part` first begins, or 1 if `text` does not contain it."""
    return text.count("\n", 0, max(0, text.find(part))) + 1
