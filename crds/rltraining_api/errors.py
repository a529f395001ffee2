"""What this room raises."""

from __future__ import annotations

from collections.abc import Iterable


class ManifestError(ValueError):
    """A manifest that cannot be used. `str` is one sentence per problem, a line each: file, field, remedy."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))
