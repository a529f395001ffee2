"""CartPole-v1 without velocities: the pole can only be balanced by who remembers. User code, found beside the manifest.

`environment: {id: "memory_cartpole:CartPoleNoVelocity-v0"}` imports this module, which registers the environment.
"""

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.vector import VectorObservationWrapper

POSITION_AND_ANGLE = [0, 2]


class NoVelocity(gym.ObservationWrapper):
    """Observations [2]: position and angle."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.observation_space = _without_velocities(env.observation_space)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[POSITION_AND_ANGLE]


class NoVelocityVector(VectorObservationWrapper):
    """Observations [B, 2] of B environments that are one computation."""

    def __init__(self, env: gym.vector.VectorEnv) -> None:
        super().__init__(env)
        self.single_observation_space = _without_velocities(env.single_observation_space)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, env.num_envs)

    def observations(self, observations: np.ndarray) -> np.ndarray:
        return observations[:, POSITION_AND_ANGLE]


def _without_velocities(space: gym.spaces.Box) -> gym.spaces.Box:
    return gym.spaces.Box(space.low[POSITION_AND_ANGLE], space.high[POSITION_AND_ANGLE], dtype=np.float32)


def make(**kwargs) -> gym.Env:
    return NoVelocity(CartPoleEnv(**kwargs))


def make_vector(num_envs: int, **kwargs) -> gym.vector.VectorEnv:
    return NoVelocityVector(CartPoleVectorEnv(num_envs=num_envs, **kwargs))


gym.register(
    id="CartPoleNoVelocity-v0",
    entry_point=make,
    vector_entry_point=make_vector,
    max_episode_steps=500,
    reward_threshold=475.0,
)
