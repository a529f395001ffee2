"""One gymnasium environment as a vector environment of one."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from rltraining_trainer.environments.mistakes import copy_array
from rltraining_trainer.environments.nested_spaces import first_of
from rltraining_trainer.environments.packed_space import MASK_KEY
from rltraining_trainer.environments.return_values import Info, checked_reset, checked_step


class SingleEnvironment(VectorEnv):
    """Steps one environment as a vector environment of one.

    Equivalent to ``SyncVectorEnv([lambda: environment])``, but without gymnasium's batching, which
    takes several times as long as a step of a small environment. Infos keep only ``action_mask``.
    """

    def __init__(self, environment: gym.Env) -> None:
        self.environment = environment
        self.num_envs = 1
        self.spec = environment.spec
        self.render_mode = environment.render_mode
        self.metadata = {**environment.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = environment.observation_space
        self.single_action_space = environment.action_space
        self.observation_space = batch_space(self.single_observation_space, 1)
        self.action_space = batch_space(self.single_action_space, 1)
        # Cache the space's attributes, which are slow properties. Copying preallocated arrays in
        # `step` takes half the time of creating new ones.
        self._dtype, self._shape = self.single_observation_space.dtype, self.single_observation_space.shape
        self._reward = np.zeros(1, np.float32)
        self._terminated, self._truncated = np.zeros(1, bool), np.zeros(1, bool)
        self._ended = False
        self._env_obs: tuple[Any, ...] = ()  # the newest observation, as SyncVectorEnv keeps it

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = checked_reset(self.environment.reset(seed=seed, options=options))
        self._ended = False
        return self._batch_of_one(observation), _batched(info)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps the environment, or resets it and ignores the action if its episode has ended."""
        if self._ended:
            observation, info = checked_reset(self.environment.reset())
            reward, terminated, truncated = 0.0, False, False
        else:
            returned = self.environment.step(first_of(actions))
            observation, reward, terminated, truncated, info = checked_step(returned)
        self._reward[0], self._terminated[0], self._truncated[0] = reward, terminated, truncated
        self._ended = terminated or truncated
        figures = self._reward.copy(), self._terminated.copy(), self._truncated.copy()
        return self._batch_of_one(observation), *figures, _batched(info)

    def render(self) -> tuple[Any, ...]:
        return (self.environment.render(),)

    def close_extras(self, **kwargs: Any) -> None:
        self.environment.close()

    def _batch_of_one(self, observation: Any) -> Any:
        self._env_obs = (observation,)
        space = self.single_observation_space
        if self._shape is None:  # composite
            empty: Any = create_empty_array(space, 1)
            return concatenate(space, [observation], empty)
        return copy_array(observation, space, self._dtype, self._shape)[np.newaxis]


def _batched(info: Info) -> dict[str, Any]:
    """Returns infos of a batch of one."""
    return {MASK_KEY: [info[MASK_KEY]]} if info else info
