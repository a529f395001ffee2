"""Steps environments of all three autoreset modes in one way.

Gymnasium's vector environments differ in what happens when an episode ends at step t
(``AutoresetMode``):

========  ==================  ==================  ================================
mode      observation at t    observation at t+1  what a trainer must do
========  ==================  ==================  ================================
NextStep  the episode's last  first of the next   leave step t+1 out of the loss
SameStep  first of the next   second of the next  take the last from ``final_obs``
Disabled  the episode's last  (a reset is due)    reset, then as SameStep
========  ==================  ==================  ================================

With NextStep the action at t+1 is ignored.

A ``Step`` hides these differences: ``valid`` marks the rows that were real steps, ``first`` marks
observations that begin an episode, and ``final`` holds last observations that are not in the
stream.

An environment that fails at step t and is reset (``spec.environment.onError``) appears as if its
episode had been truncated before step t and step t had only reset it: row t is not a step
(``valid`` is False), and ``observation`` begins the next episode. Meaningless or NaN values are
therefore never used for learning. ``discarded`` marks the row, and the return of the episode is not
reported.

Infos of the project's own environments may have ``LIFE_LOST`` ``[B]`` bool: the learner treats the
loss of a life as a terminal state followed by a new episode, while the game's episode continues.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from rltraining_api.job import JobSpec

from rltraining_trainer.environments.batch import Spaces, check_equal_spaces
from rltraining_trainer.environments.bounds import BoxWarning, index_bounds
from rltraining_trainer.environments.faults import FAILED, REMAKE, RESETS_ALONE, Faults
from rltraining_trainer.environments.magnitudes import Limits
from rltraining_trainer.environments.make import close_environments
from rltraining_trainer.environments.mistakes import environment_error
from rltraining_trainer.environments.nested_spaces import discrete_choices
from rltraining_trainer.environments.number_check import NumberCheck
from rltraining_trainer.environments.packed_space import MASK_KEY, PackedSpace, original_space
from rltraining_trainer.environments.packing import given_observations
from rltraining_trainer.errors import BadConfiguration, UserCodeError

_LOG = logging.getLogger(__name__)

LIFE_LOST = "rltraining/lifeLost"
"""Key in infos, with a prefix that users' environments do not use."""


@dataclass(slots=True)
class Step:
    """The result of one action in each of B environments.

    Attributes:
        observation: ``[B, ...]``, the next observation: float32 for floats, otherwise of the
            space's type.
        reward: ``[B]`` float32, 0 where ``valid`` is False.
        terminated: ``[B]`` bool, a terminal state was reached, whose value is 0.
        truncated: ``[B]`` bool, the episode was cut off, so its last observation is bootstrapped.
        over: ``[B]`` bool, the episode ended. A lost life sets ``terminated`` but not ``over``.
        valid: ``[B]`` bool, False where the environment only reset itself and ignored the action.
        first: ``[B]`` bool, ``observation`` begins an episode or a life.
        final: ``[B, ...]``, the last observations of episodes that ended, where ``over``. None if
            ``observation`` holds them.
        discarded: ``[B]`` bool, the episode was discarded before this step because its environment
            failed. None if no environment failed.
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
class StepperStats:
    """Counters of a stepper, separate from it so that reporting them keeps no environment alive."""

    steps: int = 0
    """Number of environment steps."""
    episodes: int = 0
    """Number of episodes that ended."""
    seconds: float = 0.0
    """Time spent in stepping."""
    discarded: int = 0
    """Number of episodes discarded because their environments failed."""
    first_error: str = ""
    """The first of these failures, without its traceback."""


class Stepper:
    """Steps a vector environment of any autoreset mode."""

    def __init__(
        self,
        environments: VectorEnv,
        name: str,
        faults: Faults | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Wraps ``environments``.

        Args:
            environments: Closed with this stepper.
            name: The environment's name in messages.
            faults: Decides which errors of environments are survived. None: no errors.
            limits: Observations beyond them are failures, and so are rewards if failures are
                survived. Otherwise the algorithm checks rewards. None: numbers have to be finite.
        """
        space, mode = environments.single_observation_space, environments.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise BadConfiguration(
                f"spec.environment.id: {name!r} declares no autoreset mode; "
                "set metadata['autoreset_mode'] to a gymnasium.vector.AutoresetMode in its vector environment"
            )
        self.environments = environments
        self.name = name
        self.shows_last_observation = mode is AutoresetMode.NEXT_STEP
        """Whether the last observation of every episode is in the stream (mode NextStep)."""
        self._mode = mode
        is_float = space.dtype is None or np.issubdtype(space.dtype, np.floating)
        self._dtype = np.dtype(np.float32) if is_float else space.dtype
        self._indices = index_bounds(space)
        self._boxes = BoxWarning.of(name, space)
        self._all = np.ones(environments.num_envs, bool)
        self._none = np.zeros(environments.num_envs, bool)
        self._over = self._none
        self._faults = faults or Faults()
        self._check = NumberCheck(space, name, limits or Limits(), always=self._faults.resets)
        self._alone = bool(environments.metadata.get(RESETS_ALONE))
        has_mask = isinstance(space, PackedSpace) and space.mask is not None
        self._needs_no_mask = not has_mask and bool(discrete_choices(environments.single_action_space))
        self._suspect = self._none.copy()  # environments that failed and have not completed a step since
        self.stats = StepperStats()

    @classmethod
    def of(cls, spec: JobSpec, environments: VectorEnv, spaces: Spaces | None = None) -> Stepper:
        """Returns a stepper of ``environments`` with the name and the rules of a job's spec.

        Raises UserCodeError if ``spaces`` are given, for which the network is made, and differ.
        """
        if spaces is not None:
            made = environments.single_observation_space, environments.single_action_space
            check_equal_spaces(spaces, made)
        return cls(environments, spec.environment.id, Faults.of(spec.environment), Limits.of(spec))

    def reset(self, seed: int | None, options: dict[str, Any] | None = None) -> np.ndarray:
        """Resets all environments, each with a different seed derived from ``seed``.

        Returns first observations ``[B, ...]``.
        """
        self._faults.in_first_reset = True
        observation, failed = self._reset(options, seed=seed)
        if failed:
            observation, _ = self._recover(observation, failed)
        self._faults.in_first_reset = False
        self._over = self._none
        expected = (self.environments.num_envs, *(self.environments.single_observation_space.shape or ()))
        if observation.shape != expected:
            raise UserCodeError(
                f"environment {self.name!r}: reset returned observations of shape {observation.shape}, "
                f"but its observation space requires {expected}"
            )
        return observation

    def step(self, action: np.ndarray) -> Step:
        """Takes ``action[b]`` in environment b.

        Raises:
            UserCodeError: The environment raised. The message has the user's traceback.
            Diverged: An observation is beyond the limits.
        """
        began = time.perf_counter()
        try:
            given, reward, terminated, truncated, info = self.environments.step(action)
            # Convert types, without a copy where they are right already.
            observation, reward = self._converted(given), np.asarray(reward, np.float32)
            terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
            over = terminated | truncated
            if reward.shape != self._none.shape or over.shape != self._none.shape:
                self._raise_wrong_shape(reward=reward, terminated=terminated, truncated=truncated)
            if self._needs_no_mask and MASK_KEY in info:
                self._raise_late_mask()
            # Hide the autoreset mode. A reset has no reward, whatever the environment returns.
            if self.shows_last_observation:
                valid, first, final = ~self._over, self._over, None
                reward = np.where(valid, reward, np.float32(0.0)) if first.any() else reward
            else:
                valid, first, final = self._all, over, None
                if over.any():
                    observation, final, info = self._final(observation, over, info)
            if LIFE_LOST in info:
                terminated, first = terminated | info[LIFE_LOST], first | info[LIFE_LOST]
        except BaseException as error:
            raise self._error("step", error) from error
        if self._indices is not None or self._boxes is not None:
            info = self._check_bounds("step", info, observation, final)
        step = Step(observation, reward, terminated, truncated, over, valid, first, final)
        # Discard the episodes of failed environments.
        accepts = self._check.accepts
        if self._faults.resets or FAILED in info or not (accepts(observation) and accepts(final)):
            failed = self._failures(info, observation, given, reward, final)
            if failed:
                self._discard(step, failed)
            else:
                self._suspect = self._suspect & ~valid
        if self.shows_last_observation:
            self._over = step.over
        self.stats.steps += int(np.count_nonzero(step.valid))
        self.stats.episodes += int(np.count_nonzero(step.over))
        self.stats.seconds += time.perf_counter() - began
        return step

    def _raise_wrong_shape(self, **values: np.ndarray) -> None:
        """Raises an error for the first of ``values`` that is not one per environment."""
        for name, value in values.items():
            if value.shape != self._none.shape:
                raise UserCodeError(
                    f"environment {self.name!r}: step must return {name} of shape {self._none.shape}, one "
                    f"for each environment, got {value.shape}"
                )

    def _raise_late_mask(self) -> None:
        raise UserCodeError(
            f'environment {self.name!r}: step returned info["{MASK_KEY}"], but the first reset did not; '
            "return it with each observation, since every action needs a mask"
        )

    def _converted(self, observation: Any) -> np.ndarray:
        """Converts observations to this stepper's type. Numbers that it cannot hold become infinite."""
        if getattr(observation, "dtype", None) == self._dtype:
            return np.asarray(observation)
        with np.errstate(over="ignore"):
            return np.asarray(observation, self._dtype)

    def _check_bounds(
        self, method: str, info: dict[str, Any], observation: np.ndarray, final: np.ndarray | None = None
    ) -> dict[str, Any]:
        """Returns ``info`` with a failure for each index outside of its space. Warns of values
        outside of the bounds of a Box."""
        if self._boxes is not None and self._boxes.check(observation):
            self._boxes = None
        if self._indices is None:
            return info
        excesses = self._indices.excesses(observation)
        if final is not None:
            excesses |= self._indices.excesses(final)
        if not excesses:
            return info
        outside = {
            b: UserCodeError(
                f"environment {self.name!r}: {method} must return {excess.element} from {excess.low} to "
                f"{excess.high} to match its observation space {excess.space}, got {excess.value}"
            )
            for b, excess in excesses.items()
        }
        return {**info, FAILED: {**outside, **info.get(FAILED, {})}}

    def _failures(
        self,
        info: dict[str, Any],
        observation: np.ndarray,
        given: Any,
        reward: np.ndarray | None = None,
        final: np.ndarray | None = None,
    ) -> dict[int, Exception]:
        """Returns the error of each failed environment by its index.

        Args:
            info: Infos with the failures that the environments report.
            observation: ``[B, ...]``.
            given: The observations as the environments returned them.
            reward: ``[B]``. Values beyond their limit count as failures if these are survived.
            final: ``[B, ...]``, last observations of episodes.
        """
        failed: dict[int, Exception] = dict(info.get(FAILED, {}))
        # Check the observations, and the last ones of episodes.
        if not self._check.accepts(observation):
            originals = given_observations(self.environments, given)
            failed = self._check.observation_errors(observation, originals) | failed
        if final is not None and not self._check.accepts(final):
            packed = isinstance(self.environments.single_observation_space, PackedSpace)
            originals = None if packed else info.get("final_obs")
            failed = self._check.observation_errors(final, originals) | failed
        # Check the rewards.
        if self._faults.resets and reward is not None:
            failed = self._check.reward_errors(reward) | failed
        return failed

    def check_rewards(self, rewards: np.ndarray) -> None:
        """Raises Diverged if one of the rewards ``[N]`` is NaN, infinite or beyond the limit."""
        for error in self._check.reward_errors(rewards).values():
            raise self._faults.advised(error)

    def _discard(self, step: Step, failed: dict[int, Exception]) -> None:
        """Turns the rows of environments that failed at ``step`` into resets, and resets them."""
        observation, mask = self._recover(step.observation, failed)
        # Environments that were only resetting themselves had no episode to discard.
        step.discarded = mask & step.valid
        self.stats.discarded += int(np.count_nonzero(step.discarded))
        step.observation = observation
        step.reward = np.where(mask, np.float32(0.0), step.reward)
        step.terminated, step.truncated = step.terminated & ~mask, step.truncated & ~mask
        step.over, step.valid, step.first = step.over & ~mask, step.valid & ~mask, step.first | mask
        if step.final is not None:
            step.final[mask] = observation[mask]  # not used, but must be finite
        self._suspect = (self._suspect & ~step.valid) | mask

    def _recover(
        self, observation: np.ndarray, failed: dict[int, Exception]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Resets failed environments until each has a first observation.

        Resets all environments if they cannot be reset alone. An environment that fails again
        before completing a step is recreated.

        Returns:
            ``observation`` with the first observations of new episodes, and ``[B]`` bool, which are
            new.

        Raises:
            Exception: ``Faults`` does not tolerate an error.
        """
        begun = self._none.copy()
        suspect = self._suspect.copy()
        while failed:
            # A vector environment that fails as a whole reports one error for all its environments.
            errors = {id(error): error for error in failed.values()}.values()
            self._faults.add(errors)
            for error in errors:
                self.stats.first_error = self.stats.first_error or str(error).partition("\n")[0]
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
        """Resets environments.

        Returns observations ``[B, ...]`` and failures by index, limited to ``only`` ``[B]`` bool.
        """
        try:
            given, info = self.environments.reset(seed=seed, options=options)
            observation = self._converted(given)
        except BaseException as error:
            raise self._error("reset", error) from error
        info = self._check_bounds("reset", info, observation)
        failed = self._failures(info, observation, given)
        return observation, {b: error for b, error in failed.items() if only is None or only[b]}

    def _final(
        self, observation: np.ndarray, over: np.ndarray, info: dict[str, Any]
    ) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Returns the observations to act on next, the last observations of ended episodes, and
        ``info`` with the failures of resets.

        Resets the environments that are ``over`` in mode Disabled.
        """
        final = observation.copy()
        if self._mode is AutoresetMode.DISABLED:
            observation, begun = self.environments.reset(options={"reset_mask": over})
            if FAILED in begun:
                info = {**info, FAILED: {**info.get(FAILED, {}), **begun[FAILED]}}
            return self._converted(observation), final, info
        final[over] = self._converted(np.stack(list(info["final_obs"][over])))
        return observation, final, info

    def _error(self, method: str, error: BaseException) -> Exception:
        observations = given_observations(self.environments, ())
        space = original_space(self.environments.single_observation_space)
        return self._faults.advised(environment_error(self.name, method, error, space, observations))

    def close(self) -> None:
        close_environments(self.environments, self.name)
