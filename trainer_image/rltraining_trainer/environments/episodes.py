"""Returns and lengths of the episodes of environments that are stepped together."""

from __future__ import annotations

import numpy as np

from rltraining_trainer.environments.stepper import Step


class EpisodeTracker:
    """Adds up undiscounted rewards until an episode ends; ``take()`` hands out those that ended since the last call."""

    def __init__(self, num_envs: int) -> None:
        self._return = np.zeros(num_envs, np.float64)
        self._length = np.zeros(num_envs, np.int64)
        self._returns: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []

    def add(self, step: Step) -> None:
        self._return += step.reward
        self._length += step.valid
        ended = step.terminated | step.truncated
        if ended.any():
            self._returns.append(self._return[ended])
            self._lengths.append(self._length[ended])
            self._return[ended] = 0.0
            self._length[ended] = 0

    def take(self) -> tuple[np.ndarray, np.ndarray]:
        """(returns ``[K]`` float32, lengths ``[K]`` int64) of the K episodes that ended since the last call."""
        returns = np.concatenate(self._returns) if self._returns else np.zeros(0)
        lengths = np.concatenate(self._lengths) if self._lengths else np.zeros(0, np.int64)
        self._returns, self._lengths = [], []
        return returns.astype(np.float32), lengths
