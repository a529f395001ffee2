"""Returns and lengths of the episodes of environments that are stepped together."""

from __future__ import annotations

import numpy as np


class EpisodeTracker:
    """Adds up undiscounted rewards and steps of episodes that go on over many unrolls."""

    def __init__(self, num_envs: int) -> None:
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)

    def add(
        self, reward: np.ndarray, ended: np.ndarray, valid: np.ndarray, told: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The next T steps, all of them ``[T, B]``; ``ended`` where an episode ended, ``valid`` where there was a step:
        what else stands in ``reward`` is no part of a return. ``told`` ``[B]`` bool: whose episodes are to be told (None: all).

        Returns:
            Of the K episodes that ended, in the order of their ends: returns ``[K]`` float32 and lengths ``[K]`` int64.
        """
        returns = self._return + np.cumsum(np.where(valid, reward, 0.0), 0, dtype=np.float64)
        lengths = self._length + np.cumsum(valid, 0)
        environment, time = np.nonzero(ended.T)
        # Ends that are not the first in their environment:
        later = np.flatnonzero(environment[1:] == environment[:-1]) + 1
        episode_returns = _since_last_end(returns[time, environment], later)
        episode_lengths = _since_last_end(lengths[time, environment], later)

        self._return, self._length = returns[-1], lengths[-1]
        last = np.append(environment[1:] != environment[:-1], True)[: len(environment)]
        self._return[environment[last]] -= returns[time[last], environment[last]]
        self._length[environment[last]] -= lengths[time[last], environment[last]]
        order = np.argsort(time, kind="stable")
        if told is not None:
            order = order[told[environment[order]]]
        return episode_returns[order].astype(np.float32), episode_lengths[order]


def _since_last_end(totals: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Running totals at ends ``[K]``, sorted by environment, as sums of single episodes."""
    sums = totals.copy()
    sums[later] -= totals[later - 1]
    return sums
