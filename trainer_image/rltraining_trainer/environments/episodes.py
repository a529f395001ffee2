"""Returns and lengths of the episodes of environments that are stepped together."""

from __future__ import annotations

from typing import Any

import numpy as np

HELD_PER_ENVIRONMENT = 4
"""Maximum number of held episodes per environment."""


class EpisodeTracker:
    """Adds up undiscounted rewards and steps of episodes across unrolls.

    Finished episodes are reported in the order in which they began. Reporting them in the order in
    which they end would favour short episodes: B environments that start together finish their
    short episodes first, and in Acrobot-v1 an untrained policy then seems to have learnt something.
    A finished episode is therefore held until all earlier ones have ended too, or until
    ``HELD_PER_ENVIRONMENT`` · B episodes are held behind a very long one.
    """

    def __init__(self, num_envs: int) -> None:
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        # Start of each environment's current episode, as a sort key: row * B + environment.
        self._began = np.arange(num_envs)
        self._rows = 0
        self._held: list[tuple[int, float, int]] = []

    def add(
        self,
        reward: np.ndarray,
        ended: np.ndarray,
        valid: np.ndarray,
        reported: np.ndarray | None = None,
        discarded: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Adds the next T steps of B environments.

        Args:
            reward: ``[T, B]``, ignored where ``valid`` is False.
            ended: ``[T, B]`` bool, an episode ended.
            valid: ``[T, B]`` bool, the row is an environment step.
            reported: ``[B]`` bool, the environments whose episodes are reported (None: all).
            discarded: ``[T, B]`` bool, the episode was discarded and is never reported (None:
                none).

        Returns:
            Returns ``[K]`` float32 and lengths ``[K]`` int64 of the K episodes that are released,
            in the order in which they began.
        """
        returns, lengths = np.where(valid, reward, 0.0).cumsum(0, np.float64), valid.cumsum(0)
        # Running totals at the start of each environment's episode. Few episodes end in an unroll,
        # so a loop over them is faster than array arithmetic.
        first_return, first_length = (-self._return).tolist(), (-self._length).tolist()
        ends, num_envs = (ended if discarded is None else ended | discarded).nonzero(), len(self._began)
        columns = (*ends, ended[ends], returns[ends], lengths[ends])
        for t, b, whole, total, count in zip(*(column.tolist() for column in columns), strict=True):
            if whole and (reported is None or reported[b]):
                self._held.append((int(self._began[b]), total - first_return[b], count - first_length[b]))
            first_return[b], first_length[b] = total, count
            self._began[b] = (self._rows + t + 1) * num_envs + b
        self._return, self._length = returns[-1] - first_return, lengths[-1] - first_length
        self._rows += len(reward)
        released = self._release(self._began if reported is None else self._began[reported])
        return (
            np.array([total for _, total, _ in released], np.float32),
            np.array([count for _, _, count in released], np.int64),
        )

    def get_state(self) -> dict[str, Any]:
        """Returns the state as plain values and lists."""
        return {
            "return": self._return.tolist(),
            "length": self._length.tolist(),
            "began": self._began.tolist(),
            "rows": self._rows,
            "held": list(self._held),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state."""
        self._return = np.array(state["return"], np.float64)
        self._length = np.array(state["length"], np.int64)
        self._began = np.array(state["began"], np.int64)
        self._rows, self._held = state["rows"], [tuple(episode) for episode in state["held"]]

    def _release(self, running: np.ndarray) -> list[tuple[int, float, int]]:
        """Removes and returns the held episodes that began before all ``running`` ones.

        Also releases the oldest held episodes above the limit.
        """
        if not self._held:
            return []
        self._held.sort()
        oldest = running.min() if len(running) else np.inf
        count = sum(began < oldest for began, _, _ in self._held)
        count = max(count, len(self._held) - HELD_PER_ENVIRONMENT * len(self._began))
        released, self._held = self._held[:count], self._held[count:]
        return released
