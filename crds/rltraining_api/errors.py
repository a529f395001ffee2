"""What this room raises."""

from __future__ import annotations

from collections.abc import Iterable

from rltraining_api.bounds import PROBLEMS_MAX, SENTENCE_MAX, shortened

LINES_MAX = 2 * PROBLEMS_MAX
"""Of all jobs of a file."""


class ManifestError(ValueError):
    """A manifest that cannot be used. `str` is one sentence per problem, a line each: file, field, remedy. Long sentences are
    cut short, and of many problems the rest are counted."""

    def __init__(self, problems: Iterable[str]) -> None:
        shown = [shortened(problem, SENTENCE_MAX) for problem in problems]
        more = len(shown) - LINES_MAX
        self.problems = (*shown[:LINES_MAX], *([f"and {more} more lines"] if more > 0 else []))
        super().__init__("\n".join(self.problems))
