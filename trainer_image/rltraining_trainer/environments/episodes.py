"""Returns and lengths of the episodes of environments that are stepped together."""

from __future__ import annotations

import numpy as np

HELD_PER_ENVIRONMENT = 4
"""Episodes that are held back for each environment, at most, while one that began before them still runs."""


class EpisodeTracker:
    """Adds up undiscounted rewards and steps of episodes that go on over many unrolls, and reports them in the order in which
    they began.

    B environments that begin together end their short episodes first, so the newest returns in the order of their *ends* are
    those of short episodes again and again: in Acrobot-v1 an untrained policy seems to have learnt something. Which episode
    begins next does not depend on its length. An episode that has ended is therefore held back until all that began before it
    have ended too, or until ``HELD_PER_ENVIRONMENT`` · B are held back by one that hardly ends.
    """

    def __init__(self, num_envs: int) -> None:
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        # When each environment's episode began: rows so far times B, plus its number.
        self._began = np.arange(num_envs)
        self._rows = 0
        self._held: list[tuple[int, float, int]] = []

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
            Of the K episodes that are not held back any more, in the order of their beginnings: returns ``[K]`` float32 and
            lengths ``[K]`` int64.
        """
        returns, lengths = np.where(valid, reward, 0.0).cumsum(0, np.float64), valid.cumsum(0)
        # Of each environment, the running totals where its episode began. Few episodes end in an unroll: a loop over them, of
        # plain numbers, takes less than arithmetic of arrays would.
        first_return, first_length = (-self._return).tolist(), (-self._length).tolist()
        ends, num_envs = (ended if discarded is None else ended | discarded).nonzero(), len(self._began)
        columns = (*ends, ended[ends], returns[ends], lengths[ends])
        for t, b, whole, total, count in zip(*(column.tolist() for column in columns), strict=True):
            if whole and (told is None or told[b]):
                self._held.append((int(self._began[b]), total - first_return[b], count - first_length[b]))
            first_return[b], first_length[b] = total, count
            self._began[b] = (self._rows + t + 1) * num_envs + b
        self._return, self._length = returns[-1] - first_return, lengths[-1] - first_length
        self._rows += len(reward)
        released = self._release(self._began if told is None else self._began[told])
        return (
            np.array([total for _, total, _ in released], np.float32),
            np.array([count for _, _, count in released], np.int64),
        )

    def _release(self, running: np.ndarray) -> list[tuple[int, float, int]]:
        """The held episodes that began before all that are ``running``, and those that are too many to hold."""
        if not self._held:
            return []
        self._held.sort()
        oldest = running.min() if len(running) else np.inf
        count = sum(began < oldest for began, _, _ in self._held)
        count = max(count, len(self._held) - HELD_PER_ENVIRONMENT * len(self._began))
        released, self._held = self._held[:count], self._held[count:]
        return released
