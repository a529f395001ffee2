"""The rule by which runs on CartPole-v1 are compared: the mean return of the last 100 training episodes is at least 475."""

from __future__ import annotations

import json
import time
from collections import deque

ENVIRONMENT = "CartPole-v1"
RETURN, EPISODES = 475.0, 100


class Score:
    """Measures one run. Construct it first, so that imports and compilation count as start-up.

    Args:
        limit: seconds of training after which the run counts as not solved.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._made = self._begun = time.monotonic()
        self._returns: deque[float] = deque(maxlen=EPISODES)

    def begin(self) -> None:
        """Ends the start-up: the first environment step follows."""
        self._begun = time.monotonic()

    def add(self, episode_return: float) -> None:
        self._returns.append(episode_return)

    @property
    def mean(self) -> float:
        """Mean return of the last 100 episodes; 0 if there are fewer."""
        return sum(self._returns) / EPISODES if len(self._returns) == EPISODES else 0.0

    @property
    def solved(self) -> bool:
        return self.mean >= RETURN

    @property
    def over(self) -> bool:
        return self.solved or time.monotonic() - self._begun > self._limit

    def report(self, steps: int) -> None:
        """Prints the result of the run after this number of environment steps."""
        report(self.solved, time.monotonic() - self._begun, steps, self._begun - self._made)


def report(solved: bool, seconds: float, steps: int, startup: float) -> None:
    result = {"solved": solved, "seconds": seconds, "steps": steps, "startup": startup}
    print(json.dumps(result), flush=True)
