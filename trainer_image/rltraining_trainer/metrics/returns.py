"""Statistics of episode returns: the mean of the latest episodes, and the smoothed return."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


class EpisodeReturns:
    """Undiscounted returns of the latest ``capacity`` episodes, and the number of all episodes."""

    def __init__(self, capacity: int) -> None:
        self._ring = np.zeros(capacity)
        # Number of counted episodes whose returns have not been restored.
        self._unknown = 0
        self.count = 0
        """Number of episodes over all restarts."""

    def add(self, returns: Tensor | ArrayLike) -> None:
        """Adds the returns ``[K]`` of the K episodes that ended, oldest first."""
        new = np.asarray(returns, dtype=np.float64)
        kept = new[-self._ring.size :]
        first = self.count - self._unknown + len(new) - len(kept)
        self._ring[(first + np.arange(len(kept))) % self._ring.size] = kept
        self.count += len(new)

    @property
    def full(self) -> bool:
        """Whether ``capacity`` episodes are known."""
        return self.count - self._unknown >= self._ring.size

    @property
    def capacity(self) -> int:
        return self._ring.size

    @property
    def mean(self) -> float | None:
        """The mean return of the known episodes, at most ``capacity``; None if there are none."""
        known = self.count - self._unknown
        return float(self._ring[:known].mean()) if known else None

    def get_state(self) -> dict[str, Any]:
        """Returns the known returns, oldest first, and the count."""
        known = self.count - self._unknown
        newest = np.roll(self._ring, -known) if self.full else self._ring[:known]
        return {"newest": torch.tensor(newest), "count": self.count}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state. With a smaller capacity, only the latest returns are kept."""
        newest = state["newest"].numpy()
        self._unknown = self.count = state["count"] - len(newest)
        self.add(newest)


class SmoothedReturn:
    """Computes 0.9 x old + 0.1 x new after each episode, and counts episodes in a row with
    ``at_least``.

    The initial value is the return of the first episode. With 0, as in some implementations, a task
    with negative returns would appear solved at the start.
    """

    def __init__(self, at_least: float) -> None:
        self._at_least = at_least
        self.value: float | None = None
        self.longest = 0
        """Largest number of episodes in a row with a value of at least ``at_least``."""
        self._row = 0

    def add(self, returns: Tensor | ArrayLike) -> None:
        """Adds the returns ``[K]`` of the K episodes that ended, oldest first."""
        for new in np.asarray(returns, dtype=np.float64).tolist():
            self.value = new if self.value is None else 0.9 * self.value + 0.1 * new
            self._row = self._row + 1 if self.value >= self._at_least else 0
            self.longest = max(self.longest, self._row)

    def get_state(self) -> dict[str, Any]:
        return {"at_least": self._at_least, "value": self.value, "longest": self.longest, "row": self._row}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state. With another ``at_least`` counting restarts."""
        self.value = state["value"]
        same = state["at_least"] == self._at_least
        self.longest, self._row = (state["longest"], state["row"]) if same else (0, 0)
