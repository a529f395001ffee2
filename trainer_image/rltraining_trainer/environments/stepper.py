"""One way to step environments that reset themselves in three ways.

Gymnasium's vector environments differ in what happens when an episode ends at step t (``AutoresetMode``):

==========  ==========================  =======================================  ==============================
mode        observation returned at t   observation returned at t+1              what a trainer must do
==========  ==========================  =======================================  ==============================
NextStep    the episode's last          first of the next (action ignored)       leave step t+1 out of the loss
SameStep    first of the next           second of the next                       take the last from ``final_obs``
Disabled    the episode's last          (the caller resets)                      reset, then as SameStep
==========  ==========================  =======================================  ==============================

A ``Step`` says it once for all: ``valid`` tells which rows were real steps, ``first`` which observations begin an episode,
and ``final`` holds the last observations that are not in the stream.

Infos of our own environments may have ``LIFE_LOST`` ``[B]`` bool: what is learnt from ends there, with a terminal state, and
begins anew with the same observation, while the episode goes on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rltraining_trainer.environments.make import close_environments
from rltraining_trainer.environments.mistakes import mistake
from rltraining_trainer.errors import BadConfiguration, TrainerError, UserCodeError, user_code_error

LIFE_LOST = "rltraining/lifeLost"
"""No name that infos of the users' environments would have by chance."""


@dataclass(slots=True)
class Step:
    """What one action in each of B environments led to.

    Attributes:
        observation: ``[B, ...]``, what to act on next: float32 if it is of floats, else as the observation space says.
        reward: ``[B]`` float32.
        terminated: ``[B]`` bool, a terminal state was reached: nothing follows that is to be learnt from.
        truncated: ``[B]`` bool, the episode was cut off: its value goes on.
        over: ``[B]`` bool, the episode ended; a life that was lost terminates without ending it.
        valid: ``[B]`` bool, False where the environment only reset itself and the action was ignored.
        first: ``[B]`` bool, ``observation`` begins an episode, or a life.
        final: ``[B, ...]`` or None, the last observation of episodes that ended here, where ``observation`` is not it.
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    over: np.ndarray
    valid: np.ndarray
    first: np.ndarray
    final: np.ndarray | None


@dataclass(slots=True)
class Stepped:
    """What stepping came to, apart from the environments: whoever tells of it keeps none of them alive."""

    steps: int = 0
    """Environment steps that were taken."""
    episodes: int = 0
    """Episodes that ended in them."""
    seconds: float = 0.0
    """For which the environments were stepped."""


class Stepper:
    """Steps a vector environment of any autoreset mode."""

    def __init__(self, environments: VectorEnv, name: str) -> None:
        mode, dtype = environments.metadata.get("autoreset_mode"), environments.single_observation_space.dtype
        if not isinstance(mode, AutoresetMode):
            raise BadConfiguration(
                f"spec.environment.id: {name!r} does not say how it resets itself; "
                "set metadata['autoreset_mode'] to a gymnasium.vector.AutoresetMode in its vector environment"
            )
        self.environments = environments
        self.name = name
        self.shows_last_observation = mode is AutoresetMode.NEXT_STEP
        """The last observation of every episode is in the stream: it is what the reset step begins with."""
        self._mode = mode
        self._dtype = np.dtype(np.float32) if dtype is None or np.issubdtype(dtype, np.floating) else dtype
        self._all = np.ones(environments.num_envs, bool)
        self._none = np.zeros(environments.num_envs, bool)
        self._over = self._none
        self._resting = 0  # environments whose next step only resets them
        self.stepped = Stepped()

    def reset(self, seed: int | None) -> np.ndarray:
        """First observations ``[B, ...]``; each environment gets a seed of its own from ``seed``."""
        try:
            observation, _ = self.environments.reset(seed=seed)
            observation = np.asarray(observation, self._dtype)
        except BaseException as error:
            raise self._told("reset", error) from error
        self._over, self._resting = self._none, 0
        expected = (self.environments.num_envs, *(self.environments.single_observation_space.shape or ()))
        if observation.shape != expected:
            raise UserCodeError(
                f"environment {self.name!r}: reset returned observations of shape {observation.shape}, "
                f"but by its observation space they are {expected}"
            )
        return observation

    def step(self, action: np.ndarray) -> Step:
        """Take ``action[b]`` in environment b. Raises UserCodeError with the environment's own traceback."""
        began = time.perf_counter()
        try:
            observation, reward, terminated, truncated, info = self.environments.step(action)
            # Views where the types are right already; a vector environment of the user's may return others.
            observation, reward = np.asarray(observation, self._dtype), np.asarray(reward, np.float32)
            terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
            over = terminated | truncated
            if self.shows_last_observation:
                valid, first, final = ~self._over, self._over, None
                self._over = over
            else:
                valid, first, final = self._all, over, None
                if over.any():
                    observation, final = self._final(observation, over, info)
            if LIFE_LOST in info:
                terminated, first = terminated | info[LIFE_LOST], first | info[LIFE_LOST]
        except BaseException as error:
            raise self._told("step", error) from error
        self._count(int(np.count_nonzero(over)), time.perf_counter() - began)
        return Step(observation, reward, terminated, truncated, over, valid, first, final)

    def _count(self, ended: int, seconds: float) -> None:
        self.stepped.steps += self.environments.num_envs - self._resting
        self._resting = ended if self.shows_last_observation else 0
        self.stepped.episodes += ended
        self.stepped.seconds += seconds

    def _final(
        self, observation: np.ndarray, over: np.ndarray, info: dict[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(observations to go on with, last observations of the ended episodes)."""
        final = observation.copy()
        if self._mode is AutoresetMode.DISABLED:
            observation, _ = self.environments.reset(options={"reset_mask": over})
            return np.asarray(observation, self._dtype), final
        final[over] = np.stack(list(info["final_obs"][over]))
        return observation, final

    def _told(self, method: str, error: BaseException) -> TrainerError:
        what = f"environment {self.name!r}: {method}"
        rule = mistake(self.environments, method, error)
        return UserCodeError(f"{what} {rule}") if rule else user_code_error(what, error)

    def close(self) -> None:
        close_environments(self.environments, self.name)
