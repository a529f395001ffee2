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

An environment that fails at step t and is reset (``spec.environment.onError``) looks as if its episode had been truncated
before step t, and as if step t had only reset it: row t is no step (``valid`` is False), and ``observation`` begins the next
episode. So nothing is learnt from what has no meaning, or is NaN. ``discarded`` marks the row; the episode has no return.

Infos of our own environments may have ``LIFE_LOST`` ``[B]`` bool: what is learnt from ends there, with a terminal state, and
begins anew with the same observation, while the episode goes on.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rltraining_trainer.environments.faults import FAILED, REMAKE, RESETS_ALONE, Faults
from rltraining_trainer.environments.make import close_environments
from rltraining_trainer.environments.mistakes import environment_error, not_finite
from rltraining_trainer.environments.packed_space import numbers_of, original_space
from rltraining_trainer.errors import BadConfiguration, Diverged, TrainerError, UserCodeError

_LOG = logging.getLogger(__name__)

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
        discarded: ``[B]`` bool or None, the episode was given up before this step, since its environment failed.
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    over: np.ndarray
    valid: np.ndarray
    first: np.ndarray
    final: np.ndarray | None
    discarded: np.ndarray | None = None


@dataclass(slots=True)
class Stepped:
    """What stepping came to, apart from the environments: whoever tells of it keeps none of them alive."""

    steps: int = 0
    """Environment steps that were taken."""
    episodes: int = 0
    """Episodes that ended in them."""
    seconds: float = 0.0
    """For which the environments were stepped."""
    discarded: int = 0
    """Episodes that were given up, since their environments failed."""
    first_error: str = ""
    """Why the first of these environments failed, without its traceback."""


class Stepper:
    """Steps a vector environment of any autoreset mode."""

    def __init__(self, environments: VectorEnv, name: str, faults: Faults | None = None) -> None:
        """``faults``: which errors of the environments are survived; without, none."""
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
        self._faults = faults or Faults()
        self._alone = bool(environments.metadata.get(RESETS_ALONE))
        self._suspect = self._none.copy()  # environments that failed and have not completed a step since
        self.stepped = Stepped()

    def reset(self, seed: int | None) -> np.ndarray:
        """First observations ``[B, ...]``; each environment gets a seed of its own from ``seed``."""
        observation, failed = self._reset(seed=seed)
        if failed:
            observation, _ = self._recover(observation, failed)
        self._over = self._none
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
            else:
                valid, first, final = self._all, over, None
                if over.any():
                    observation, final = self._final(observation, over, info)
            if LIFE_LOST in info:
                terminated, first = terminated | info[LIFE_LOST], first | info[LIFE_LOST]
        except BaseException as error:
            raise self._told("step", error) from error
        step = Step(observation, reward, terminated, truncated, over, valid, first, final)
        if self._faults.resets or FAILED in info:
            failed = self._failures(info, observation, np.where(valid, reward, 0.0), final)
            if failed:
                self._discard(step, failed)
            else:
                self._suspect = self._suspect & ~valid
        if self.shows_last_observation:
            self._over = step.over
        self.stepped.steps += int(np.count_nonzero(step.valid))
        self.stepped.episodes += int(np.count_nonzero(step.over))
        self.stepped.seconds += time.perf_counter() - began
        return step

    def _failures(
        self,
        info: dict[str, Any],
        observation: np.ndarray,
        reward: np.ndarray | None = None,
        final: np.ndarray | None = None,
    ) -> dict[int, Exception]:
        """By the numbers of environments that failed: why. NaN is looked for where that is survived."""
        failed: dict[int, Exception] = dict(info.get(FAILED, {}))
        if not self._faults.resets:
            return failed
        for what, values in (
            ("an observation", observation),
            ("an observation", final),
            ("a reward", reward),
        ):
            if values is not None and what == "an observation":
                values = numbers_of(self.environments.single_observation_space, values)
            if values is None or not np.issubdtype(values.dtype, np.floating) or np.isfinite(values).all():
                continue
            finite = np.isfinite(values).reshape(len(values), -1).all(1)
            for b in np.flatnonzero(~finite).tolist():
                failed.setdefault(b, Diverged(not_finite(self.name, what)))
        return failed

    def _discard(self, step: Step, failed: dict[int, Exception]) -> None:
        """Turns the rows of environments that failed at ``step`` into resets, and resets these environments."""
        observation, mask = self._recover(step.observation, failed)
        # Those that were resetting themselves had no episode to lose.
        step.discarded = mask & step.valid
        self.stepped.discarded += int(np.count_nonzero(step.discarded))
        step.observation = observation
        step.reward = np.where(mask, np.float32(0.0), step.reward)
        step.terminated, step.truncated = step.terminated & ~mask, step.truncated & ~mask
        step.over, step.valid, step.first = step.over & ~mask, step.valid & ~mask, step.first | mask
        if step.final is not None:
            step.final[mask] = observation[mask]  # of no episode's end, but finite
        self._suspect = (self._suspect & ~step.valid) | mask

    def _recover(
        self, observation: np.ndarray, failed: dict[int, Exception]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Resets environments until all have a first observation: alone if that is possible, else all. One that fails again
        before it has completed a step is made anew.

        Returns:
            (``observation`` with those of new episodes, ``[B]`` bool which these are).

        Raises:
            Exception: an error that is not survived.
        """
        begun = self._none.copy()
        suspect = self._suspect.copy()
        while failed:
            # One error of a whole batch is that of all its environments.
            errors = {id(error): error for error in failed.values()}.values()
            self._faults.add(errors)
            for error in errors:
                self.stepped.first_error = self.stepped.first_error or str(error).partition("\n")[0]
                _LOG.warning("an environment is reset: %s", error)
            mask = self._none.copy()
            mask[list(failed)] = True
            if not self._alone:
                mask[:] = True
            reset, failed = self._reset({"reset_mask": mask, REMAKE: mask & suspect}, only=mask)
            observation = np.where(mask.reshape(-1, *[1] * (observation.ndim - 1)), reset, observation)
            begun |= mask
            suspect |= mask
        return observation, begun

    def _reset(
        self,
        options: dict[str, Any] | None = None,
        *,
        seed: int | None = None,
        only: np.ndarray | None = None,
    ) -> tuple[np.ndarray, dict[int, Exception]]:
        """(observations ``[B, ...]``, failures of environments, of those in ``only`` ``[B]`` bool)."""
        try:
            observation, info = self.environments.reset(seed=seed, options=options)
            observation = np.asarray(observation, self._dtype)
        except BaseException as error:
            raise self._told("reset", error) from error
        failed = self._failures(info, observation)
        return observation, {b: error for b, error in failed.items() if only is None or only[b]}

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
        # SyncVectorEnv keeps observations until it puts them together, which is where it fails.
        observations = getattr(self.environments.unwrapped, "_env_obs", ())
        space = original_space(self.environments.single_observation_space)
        return environment_error(self.name, method, error, space, observations)

    def close(self) -> None:
        close_environments(self.environments, self.name)
