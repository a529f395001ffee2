"""Returns and lengths of the episodes of environments that are stepped together."""

from __future__ import annotations

import numpy as np


class EpisodeTracker:
    """Adds up undiscounted rewards and steps of episodes that go on over many unrolls."""

    def __init__(self, num_envs: int) -> None:
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)

    def add(
        self,
        reward: np.ndarray,
        ended: np.ndarray,
        valid: np.ndarray,
        told: np.ndarray | None = None,
        discarded: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The next T steps, all of them ``[T, B]``; ``ended`` where an episode ended, ``valid`` where there was a step:
        what else stands in ``reward`` is no part of a return. ``told`` ``[B]`` bool: whose episodes are to be told (None: all).
        ``discarded`` ``[T, B]`` bool: where an episode was given up, which is never told (None: nowhere).

        Returns:
            Of the K episodes that ended, in the order of their ends: returns ``[K]`` float32 and lengths ``[K]`` int64.
        """
        returns, lengths = np.where(valid, reward, 0.0).cumsum(0, np.float64), valid.cumsum(0)
        # Of each environment, the running totals where its episode began. Few episodes end in an unroll: a loop over them, of
        # plain numbers, takes less than arithmetic of arrays would.
        first_return, first_length = (-self._return).tolist(), (-self._length).tolist()
        ends = (ended if discarded is None else ended | discarded).nonzero()
        complete = ended[ends].tolist()
        episodes = []
        each = zip(ends[1].tolist(), complete, returns[ends].tolist(), lengths[ends].tolist(), strict=True)
        for b, whole, total, count in each:
            if whole and (told is None or told[b]):
                episodes.append((total - first_return[b], count - first_length[b]))
            first_return[b], first_length[b] = total, count
        self._return, self._length = returns[-1] - first_return, lengths[-1] - first_length
        return (
            np.array([total for total, _ in episodes], np.float32),
            np.array([count for _, count in episodes], np.int64),
        )
