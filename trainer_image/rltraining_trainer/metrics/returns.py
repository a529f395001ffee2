"""How good episodes are, in the two ways the field reports it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


class EpisodeReturns:
    """Undiscounted returns of the newest ``capacity`` episodes, and the number of all."""

    def __init__(self, capacity: int = 100) -> None:
        self._ring = np.zeros(capacity)
        self._not_here = 0  # counted, but before what the ring was restored with
        self.count = 0
        """Episodes added so far, over all restarts."""

    def add(self, returns: Tensor | ArrayLike) -> None:
        """Returns ``[K]`` of the K episodes that ended, oldest first."""
        new = np.asarray(returns, dtype=np.float64)
        kept = new[-self._ring.size :]
        first = self.count - self._not_here + len(new) - len(kept)
        self._ring[(first + np.arange(len(kept))) % self._ring.size] = kept
        self.count += len(new)

    @property
    def full(self) -> bool:
        """As many episodes as the mean is to go over are known."""
        return self.count - self._not_here >= self._ring.size

    @property
    def capacity(self) -> int:
        return self._ring.size

    @property
    def mean(self) -> float | None:
        """Of the newest ``capacity`` episodes, or of all that are known while they are fewer; None before the first."""
        known = self.count - self._not_here
        return float(self._ring[:known].mean()) if known else None

    def get_state(self) -> dict[str, Any]:
        """The newest returns, oldest first, and the count."""
        known = self.count - self._not_here
        newest = np.roll(self._ring, -known) if self.full else self._ring[:known]
        return {"newest": torch.tensor(newest), "count": self.count}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on as the object whose ``get_state`` it was; another capacity keeps what fits."""
        newest = state["newest"].numpy()
        self._not_here = self.count = state["count"] - len(newest)
        self.add(newest)


class SmoothedReturn:
    """0.9 x old + 0.1 x new after each episode, and how many episodes in a row it was ``at_least``.

    It begins at the first episode's return: from 0, as some implementations do, a task with negative returns
    would look solved at its start.
    """

    def __init__(self, at_least: float) -> None:
        self._at_least = at_least
        self.value: float | None = None
        self.longest = 0
        """The longest row so far: a row within one batch of episodes counts too."""
        self._row = 0

    def add(self, returns: Tensor | ArrayLike) -> None:
        """Returns ``[K]`` of the K episodes that ended, oldest first."""
        for new in np.asarray(returns, dtype=np.float64).tolist():
            self.value = new if self.value is None else 0.9 * self.value + 0.1 * new
            self._row = self._row + 1 if self.value >= self._at_least else 0
            self.longest = max(self.longest, self._row)

    def get_state(self) -> dict[str, Any]:
        return {"at_least": self._at_least, "value": self.value, "longest": self.longest, "row": self._row}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on as the object whose ``get_state`` it was; with another ``at_least`` the rows begin anew."""
        self.value = state["value"]
        same = state["at_least"] == self._at_least
        self.longest, self._row = (state["longest"], state["row"]) if same else (0, 0)
