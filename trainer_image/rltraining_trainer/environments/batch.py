"""Vector environments that survive the errors of their environments.

`EnvironmentBatch` steps single environments in turn, in one thread each or in one process each.
Gymnasium's ``SyncVectorEnv`` and ``AsyncVectorEnv`` stop at the first error of any environment, and
the processes of ``AsyncVectorEnv`` outlive a parent that is killed. Here each environment can be
reset or recreated without touching the others.

`WholeBatch` does the same for a user's own vector environment, which can only fail as a whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from rltraining_trainer.environments.faults import FAILED, REMAKE, RESETS_ALONE
from rltraining_trainer.environments.mistakes import environment_error
from rltraining_trainer.environments.nested_spaces import shown
from rltraining_trainer.environments.packed_space import MASK_KEY
from rltraining_trainer.environments.return_values import CheckedEnvironment
from rltraining_trainer.environments.slot import Description, Outcome, Request, Slot, blank
from rltraining_trainer.errors import UserCodeError

Spaces = tuple[spaces.Space, spaces.Space]
"""Spaces of one observation and of one action."""


class Slots(Protocol):
    """Runs requests on B environments: in turn, in threads or in processes."""

    def call(self, requests: Sequence[Request | None]) -> list[Outcome]:
        """Sends one request to each slot and returns all B outcomes. None skips a slot."""
        ...

    def close(self) -> None:
        """Closes all environments, then raises the first error among them."""
        ...


class InTurn:
    """Runs the environments one after the other in the calling thread."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots

    def call(self, requests: Sequence[Request | None]) -> list[Outcome]:
        return [slot.answer(request) for slot, request in zip(self._slots, requests, strict=True)]

    def close(self) -> None:
        raise_first([slot.close() for slot in self._slots])


class InThreads:
    """Runs each environment in a separate thread.

    The thread that makes an environment also steps and closes it, as some simulators require.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._threads = [ThreadPoolExecutor(1, f"environment-{number}") for number in range(len(slots))]

    def call(self, requests: Sequence[Request | None]) -> list[Outcome]:
        each = zip(self._threads, self._slots, requests, strict=True)
        answers = [thread.submit(slot.answer, request) for thread, slot, request in each]
        return [answer.result() for answer in answers]

    def close(self) -> None:
        outcomes = self.call([("close", ())] * len(self._slots))
        for thread in self._threads:
            thread.shutdown(wait=False)
        raise_first(outcomes)


class SerialEnvironments(SyncVectorEnv):
    """Steps single environments in turn as gymnasium does, and checks what they return.

    Composite observations are not copied and change with the next step. Packing copies them anyway.
    """

    def __init__(self, makers: Sequence[Callable[[], gym.Env]]) -> None:
        """Makes the environments. Raises UserCodeError if their spaces differ."""
        checked = [CheckedEnvironment(make()) for make in makers]
        for one in checked:
            given = one.observation_space, one.action_space
            check_equal_spaces((checked[0].observation_space, checked[0].action_space), given)
        made = [lambda one=one: one for one in checked]
        super().__init__(made, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observations, info = super().reset(**kwargs)
        return _copy_of(observations), info

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observations, *others = super().step(actions)
        return (_copy_of(observations), *others)


def _copy_of(observations: Any) -> Any:
    return observations.copy() if isinstance(observations, np.ndarray) else observations


class EnvironmentBatch(VectorEnv):
    """Steps B single environments as one vector environment.

    Equivalent to ``SyncVectorEnv`` in mode NEXT_STEP with two differences: infos keep only
    ``action_mask``, and errors are reported in ``info[FAILED]`` (see ``faults``) instead of raised.
    """

    def __init__(self, slots: Slots, num_envs: int) -> None:
        """Makes the environments. Raises TrainerError, after closing all of them, if one fails."""
        self._slots = slots
        self.num_envs = num_envs
        try:
            raise_first(slots.call([("make", ())] * num_envs))
            described = slots.call([("describe", ())] * num_envs)
            raise_first(described)
            about: Description = described[0].observation
            for outcome in described:
                other: Description = outcome.observation
                given = other.observation_space, other.action_space
                check_equal_spaces((about.observation_space, about.action_space), given)
        except BaseException:
            self.closed = True
            slots.close()
            raise
        self.render_mode = about.render_mode
        self.metadata = {
            **about.metadata,
            "autoreset_mode": AutoresetMode.NEXT_STEP,
            RESETS_ALONE: True,
        }
        self.single_observation_space = about.observation_space
        self.single_action_space = about.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        # The latest observation of each environment, or zeros before the first one.
        self._env_obs: list[Any] = [blank(self.single_observation_space)] * num_envs
        self._remade = 0
        self._seed: int | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets the environments that ``options`` selects. Environment b gets ``seed + b``.

        ``reset_mask`` and ``REMAKE`` in ``options`` are described in ``faults``. All other options
        are passed to the environments.
        """
        if seed is not None:
            self._seed = seed
        # Split the options into those of this class and those of the environments.
        rest = dict(options or {})
        mask = rest.pop("reset_mask", np.ones(self.num_envs, bool))
        remake = rest.pop(REMAKE, np.zeros(self.num_envs, bool)) & mask
        seeds: list[int | None] = [None if seed is None else seed + b for b in range(self.num_envs)]
        failed: dict[int, Exception] = {}
        # Recreate environments. Each gets a new seed, derived from the seed of the run.
        if remake.any():
            made = self._slots.call([("make", ()) if again else None for again in remake.tolist()])
            failed = {b: outcome.error for b, outcome in enumerate(made) if outcome.error is not None}
            for b in np.flatnonzero(remake).tolist():
                self._remade += 1
                if self._seed is not None:
                    seeds[b] = self._seed + self.num_envs * self._remade + b
        # Reset the selected environments, except those that could not be recreated.
        requests: list[Request | None] = [
            ("reset", (seeds[b], rest or None)) if mask[b] and b not in failed else None
            for b in range(self.num_envs)
        ]
        observations, info, _ = self._collect(requests, failed)
        return observations, info

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps each environment. If its episode has ended, resets it instead and ignores the action."""
        requests: list[Request | None] = [
            ("step", (action,)) for action in iterate(self.action_space, actions)
        ]
        observations, info, outcomes = self._collect(requests, {})
        return (
            observations,
            np.array([outcome.reward for outcome in outcomes], np.float64),
            np.array([outcome.terminated for outcome in outcomes], bool),
            np.array([outcome.truncated for outcome in outcomes], bool),
            info,
        )

    def _collect(
        self, requests: list[Request | None], failed: dict[int, Exception]
    ) -> tuple[Any, dict[str, Any], list[Outcome]]:
        """Sends ``requests``. Returns observations ``[B, ...]``, infos and outcomes.

        Environments without a request, or with an error, keep their previous observation. Adds errors
        to ``failed``.
        """
        outcomes = self._slots.call(requests)
        info: dict[str, Any] = {}
        for b, (request, outcome) in enumerate(zip(requests, outcomes, strict=True)):
            if outcome.error is not None:
                failed[b] = outcome.error
            elif request is not None:
                self._env_obs[b] = outcome.observation
                if outcome.action_mask is not None:
                    info = self._add_info(info, {MASK_KEY: outcome.action_mask}, b)
        if failed:
            info[FAILED] = failed
        return self._batched(), info, outcomes

    def _batched(self) -> Any:
        space = self.single_observation_space
        if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            return np.array(self._env_obs, space.dtype)
        empty: Any = create_empty_array(space, self.num_envs)
        return concatenate(space, self._env_obs, empty)

    def render(self) -> tuple[Any, ...]:
        outcomes = self._slots.call([("render", ())] * self.num_envs)
        raise_first(outcomes)
        return tuple(outcome.observation for outcome in outcomes)

    def close_extras(self, **kwargs: Any) -> None:
        self._slots.close()


class WholeBatch(VectorEnv):
    """Wraps a user's vector environment so that an error is reported as a failure of all B
    environments.

    Args:
        make: Creates the vector environment. Raises TrainerError.
        name: The environment's name in messages.
    """

    def __init__(self, make: Callable[[], VectorEnv], name: str) -> None:
        self._make, self._name = make, name
        self._inner = inner = make()
        self.num_envs, self.render_mode = inner.num_envs, inner.render_mode
        self.single_observation_space = inner.single_observation_space
        self.single_action_space = inner.single_action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        # Vector environments without autoreset accept a reset_mask.
        alone = inner.metadata.get("autoreset_mode") is AutoresetMode.DISABLED
        self.metadata = {**inner.metadata, RESETS_ALONE: alone}
        self._blank = create_empty_array(self.single_observation_space, self.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        rest = dict(options or {})
        try:
            remake, mask = rest.pop(REMAKE, None), rest.get("reset_mask")
            if mask is None or mask.all() or not self.metadata[RESETS_ALONE]:
                rest.pop("reset_mask", None)
                if remake is not None and remake.any():
                    self._remake()
            return self._inner.reset(seed=seed, options=rest or None)
        except BaseException as error:
            return self._blank, self._failed("reset", error)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        try:
            return self._inner.step(actions)
        except BaseException as error:
            none = np.zeros(self.num_envs, bool)
            return self._blank, np.zeros(self.num_envs), none, none, self._failed("step", error)

    def render(self) -> tuple[Any, ...] | None:
        return self._inner.render()

    def close_extras(self, **kwargs: Any) -> None:
        self._inner.close()

    def _remake(self) -> None:
        # The environment has failed, so errors on closing it are expected.
        with contextlib.suppress(Exception):
            self._inner.close()
        self._inner = self._make()

    def _failed(self, method: str, error: BaseException) -> dict[str, Any]:
        failure = environment_error(self._name, method, error, self.single_observation_space)
        return {FAILED: dict.fromkeys(range(self.num_envs), failure)}


def check_equal_spaces(one: Spaces, other: Spaces) -> None:
    """Raises UserCodeError if two instances of an environment have different (observation, action) spaces."""
    for name, expected, found in zip(("observation", "action"), one, other, strict=True):
        if expected != found:
            raise UserCodeError(
                f"spec.environment.id: all instances of the environment must have the same {name} space, but "
                f"one has {shown(expected)} and another has {shown(found)}"
            )


def raise_first(outcomes: Sequence[Outcome]) -> None:
    """Raises the first error in ``outcomes``, if there is one."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
