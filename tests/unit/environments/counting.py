"""An environment with a known course: observations count episodes and steps."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

EPISODES = ((3, "terminated"), (1, "truncated"), (5, "truncated"), (2, "terminated"), (4, "both"))
"""(length, how it ends) of each episode, repeated; environment b begins with the b-th."""


def length(episode: int) -> int:
    return EPISODES[episode % len(EPISODES)][0]


def terminates(episode: int) -> bool:
    return EPISODES[episode % len(EPISODES)][1] in ("terminated", "both")


def truncates(episode: int) -> bool:
    return EPISODES[episode % len(EPISODES)][1] in ("truncated", "both")


def reward(episode: int, step: int) -> float:
    """Returns the reward of the step after observation (episode, step)."""
    return (-1.0) ** episode * (1 + step / 4)


class CountingEnv(gym.Env):
    """Observations are (episode, step), and actions have no effect."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, first_episode: int) -> None:
        self.episode, self.count = first_episode - 1, 0
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.seeds.append(seed)
        self.episode, self.count = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        assert self.count < length(self.episode), "stepped after its end"
        earned = reward(self.episode, self.count)
        self.count += 1
        ended = self.count == length(self.episode)
        return (
            self._observation(),
            earned,
            ended and terminates(self.episode),
            ended and truncates(self.episode),
            {},
        )

    def _observation(self) -> np.ndarray:
        return np.array([self.episode, self.count], np.float32)


class HandWritten(VectorEnv):
    """A second implementation: its own loops, new buffers each time, and types that are only nearly right.

    A step that only resets the environment returns a reward of NaN, which must not be used.
    """

    def __init__(self, num_envs: int, mode: AutoresetMode) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = CountingEnv.observation_space
        self.single_action_space = CountingEnv.action_space
        self._mode = mode
        self._envs = [CountingEnv(b) for b in range(num_envs)]
        self._observation = np.zeros((num_envs, 2))
        self._reward = np.zeros(num_envs, object)
        self._terminated, self._truncated = np.zeros((2, num_envs), np.int8)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        for b in np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool))):
            self._observation[b] = self._envs[b].reset()[0]
            self._terminated[b] = self._truncated[b] = 0
        return self._observation, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        final = np.full_like(self._observation, np.nan)
        for b, env in enumerate(self._envs):
            if self._mode is AutoresetMode.NEXT_STEP and (self._terminated[b] or self._truncated[b]):
                self._observation[b], self._reward[b] = env.reset()[0], np.nan
                self._terminated[b] = self._truncated[b] = 0
                continue
            step = env.step(int(action[b]))
            self._observation[b], self._reward[b], self._terminated[b], self._truncated[b], _ = step
            if self._mode is AutoresetMode.SAME_STEP and (step[2] or step[3]):
                final[b] = step[0]
                self._observation[b] = env.reset()[0]
        return self._observation, self._reward, self._terminated, self._truncated, {"final_obs": final}


def synchronous(num_envs: int, mode: AutoresetMode) -> VectorEnv:
    """Returns gymnasium's own vector environment of CountingEnv."""
    return SyncVectorEnv([lambda b=b: CountingEnv(b) for b in range(num_envs)], autoreset_mode=mode)
