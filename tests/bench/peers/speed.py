"""Measures how fast a program trains, from the end of its first iteration to the end of the first one after a limit.

An iteration is a rollout and its updates. Whole iterations have the same share of both in all programs.
"""

from __future__ import annotations

import json
import time


class Speed:
    """Measures one run. Construct it first, so that imports and the first iteration count as start-up.

    Args:
        limit: seconds of training after which the run ends.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._made = time.monotonic()
        self._iterations: list[tuple[float, int, int]] = []

    def on_iteration(self, steps: int, updates: int) -> bool:
        """Records the end of an iteration, and returns whether the run is over.

        Args:
            steps: environment steps since the start.
            updates: optimizer steps since the start.
        """
        self._iterations.append((time.monotonic(), steps, updates))
        return self._iterations[-1][0] - self._iterations[0][0] > self._limit

    def report(self) -> None:
        """Prints the result of the run."""
        (begin, first_steps, first_updates), (end, steps, updates) = self._iterations[0], self._iterations[-1]
        result = {
            "seconds": end - begin,
            "steps": steps - first_steps,
            "updates": updates - first_updates,
            "startup": begin - self._made,
        }
        print(json.dumps(result), flush=True)
