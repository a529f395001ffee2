"""Transitions of n steps, collected by a sampler, learnt from out of a replay memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypedDict

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rltraining_trainer.algorithms.n_step import n_step_transitions
from rltraining_trainer.dataflow.moments import NO_MOMENTS, moments_of
from rltraining_trainer.dataflow.replay import Column
from rltraining_trainer.environments import EpisodeTracker, Stepper
from rltraining_trainer.environments.mistakes import not_finite
from rltraining_trainer.errors import BadConfiguration, Diverged
from rltraining_trainer.networks.normalizer import Normalizer

PRIORITY_EPSILON = 1e-6
"""Added to |δ|, so that what is predicted well is drawn now and then."""


class Transitions(TypedDict):
    """K of them: s, a, and what followed within n steps."""

    observation: Tensor
    """``[K, ...]`` s."""
    action: Tensor
    """``[K, ...]`` a, as the network sees it."""
    reward: Tensor
    """``[K]`` R, the discounted rewards of the k ≤ n steps, clipped and scaled."""
    discount: Tensor
    """``[K]`` γ^k, or 0 if the episode terminated within the k steps."""
    next_observation: Tensor
    """``[K, ...]`` s', the observation after the k steps."""


class Acted(NamedTuple):
    """Actions in B environments, and the network's values for them."""

    action: Tensor
    """``[B, ...]``."""
    value_of_action: Tensor
    """``[B]`` Q(s, a)."""
    value_of_state: Tensor
    """``[B]`` Q(s, a') of the action a' with the highest estimated value."""


class Actor(Protocol):
    """Acts in B environments, with a different degree of exploration in each."""

    normalizer: Normalizer | None
    """The running statistics of its network, or None."""
    warming_up: bool
    """Whether the parameters are still the initial parameters."""

    def place(self, environments: range, total: int) -> None:
        """Sets the numbers of the B environments among ``total``.

        Called before the first action, and after each change.
        """
        ...

    def act(self, observation: Tensor, first: Tensor) -> Acted:
        """Actions for observations ``[B, ...]``; ``first`` ``[B]`` bool: an episode begins."""
        ...

    def value(self, observation: Tensor) -> Tensor:
        """``value_of_state`` ``[M]`` of any observations ``[M, ...]``."""
        ...

    def to_environment(self, action: Tensor) -> np.ndarray:
        """Actions as the environment takes them."""
        ...


@dataclass(frozen=True)
class Block:
    """What T steps of B environments added. All tensors are new: they may be sent as they are."""

    transitions: Transitions
    priorities: Tensor
    """``[K]`` |δ| + ``PRIORITY_EPSILON`` by the values that the actor had."""
    steps: int
    """Steps that were taken in this block; an environment's reset is none."""
    pending: int
    """Steps without a transition yet: all steps so far = all transitions so far + pending."""
    episodes: int
    """Episodes that ended in this block."""
    episode_return: Tensor
    """``[E]`` undiscounted returns of ended episodes in the greedier half of all environments, in
    the order in which the episodes began (see ``EpisodeTracker``)."""
    episode_length: Tensor
    """``[E]`` their lengths in steps."""
    moments: Tensor
    """``[1, 1 + 2·d]`` float64, moments of the observations, or ``[0, 0]`` without normalisation."""


class _Rows(NamedTuple):
    """R rows of B environments: of each, what was acted on, how, and what the step led to."""

    observation: np.ndarray
    """``[R, B, ...]``."""
    action: np.ndarray
    """``[R, B, ...]``; from here to ``discarded``, ``[R, B]``."""
    value_of_action: np.ndarray
    value_of_state: np.ndarray
    reward: np.ndarray
    """As it is learnt from; 0 where there was no step."""
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    discarded: np.ndarray
    """The episode was discarded before this row, which is not a step."""
    final: np.ndarray
    """``[R, B]`` where in ``finals`` the last observation of the episode that ended here is; -1: in the next row."""
    finals: np.ndarray
    """``[F, ...]`` last observations that were not acted on, row by row."""
    final_values: np.ndarray
    """``[F]`` their values; 0 where the episode terminated."""


@dataclass
class TransitionCollector:
    """Acts in B environments and makes transitions of n steps of what happens, T steps at a time.

    A transition is complete when its last observation has been acted on, so that its first priority needs no other values than
    those that acting came by; only last observations that are never acted on (see ``Stepper``) are valued apart.

    Attributes:
        length: T.
        n_step, discount: n and γ.
        reward_clip: rewards are learnt from as if within ±``reward_clip`` (None: as they are),
        reward_scale: then multiplied by this.
        environments: the numbers of the B environments among ``total``, all samplers' environments.
    """

    actor: Actor
    stepper: Stepper
    length: int
    n_step: int
    discount: float
    reward_clip: float | None
    reward_scale: float
    seed: int
    environments: range
    total: int

    def __post_init__(self) -> None:
        self._observation = self.stepper.reset(self.seed)
        self._first = np.ones(len(self._observation), bool)
        self._episodes = EpisodeTracker(len(self._observation))
        self._carried: _Rows | None = None
        self.place(self.environments, self.total)

    def place(self, environments: range, total: int) -> None:
        """The number of samplers changed: from here on these are the environments' numbers among ``total``."""
        self.environments, self.total = environments, total
        self._greedier = np.array(environments) >= total // 2
        self.actor.place(environments, total)

    @torch.no_grad()
    def collect(self) -> Block:
        """The next T steps, with the network's parameters as they are now.

        Raises:
            Diverged: an observation, a reward or a value is NaN or infinite.
        """
        new, rewards, over = self._steps()
        returns, lengths = self._episodes.add(rewards, over, new.valid, self._greedier, new.discarded)
        rows = new if self._carried is None else _join(self._carried, new)
        # Truncate discarded episodes at the previous row, which may belong to the rows carried
        # over.
        rows.truncated[:-1] |= rows.discarded[1:]
        complete = max(0, len(rows.valid) - self.n_step)
        transitions, priorities = self._transitions(rows, complete)
        self._carried = _since(rows, complete)
        return Block(
            transitions=transitions,
            priorities=priorities,
            steps=int(new.valid.sum()),
            pending=int(self._carried.valid.sum()),
            episodes=int(over.sum()),
            episode_return=torch.from_numpy(returns),
            episode_length=torch.from_numpy(lengths),
            moments=self._moments(new.observation),
        )

    def _moments(self, observation: np.ndarray) -> Tensor:
        """Returns the moments of observations ``[T, B, ...]``."""
        if self.actor.normalizer is None:
            return NO_MOMENTS
        rows = observation.reshape(-1, *observation.shape[2:])
        return moments_of(torch.from_numpy(self.actor.normalizer.vectors(rows))).unsqueeze(0)

    def _steps(self) -> tuple[_Rows, np.ndarray, np.ndarray]:
        """The next T rows; the rewards ``[T, B]`` as the environments gave them; ``[T, B]`` where episodes ended."""
        length, observation, first = self.length, self._observation, self._first
        shape = (length, len(observation))
        observations, firsts = (
            np.empty((length, *observation.shape), observation.dtype),
            np.empty(shape, bool),
        )
        rewards = np.empty(shape, np.float32)
        terminated, truncated, over, valid = (np.empty(shape, bool) for _ in range(4))
        discarded = np.zeros(shape, bool)
        final, finals, final_values = np.full(shape, -1), [observation[:0]], [np.zeros(0, np.float32)]
        observation_rows, first_rows = (torch.from_numpy(array).unbind() for array in (observations, firsts))
        acted: list[Acted] = []

        for t in range(length):
            observations[t], firsts[t] = observation, first
            acted.append(self.actor.act(observation_rows[t], first_rows[t]))
            step = self.stepper.step(self.actor.to_environment(acted[t].action))
            rewards[t], valid[t], over[t] = step.reward, step.valid, step.over
            terminated[t], truncated[t] = step.terminated, step.truncated
            if step.discarded is not None:
                discarded[t] = step.discarded
            if step.final is not None:
                (ended,) = np.nonzero(step.over)
                final[t, ended] = sum(map(len, finals)) + np.arange(len(ended))
                finals.append(step.final[ended])
                final_values.append(self._values(finals[-1], goes_on=~step.terminated[ended]))
            observation, first = step.observation, step.first

        self._observation, self._first = observation, first
        self._check_finite("a reward", rewards[valid], rewards[valid])
        learnt = rewards if self.reward_clip is None else rewards.clip(-self.reward_clip, self.reward_clip)
        action, value_of_action, value_of_state = (
            torch.stack(parts).numpy() for parts in zip(*acted, strict=True)
        )
        rows = _Rows(
            observation=observations,
            action=action,
            value_of_action=value_of_action,
            value_of_state=value_of_state,
            reward=np.where(valid, learnt * np.float32(self.reward_scale), np.float32(0.0)),
            terminated=terminated,
            truncated=truncated,
            valid=valid,
            discarded=discarded,
            final=final,
            finals=np.concatenate(finals),
            final_values=np.concatenate(final_values),
        )
        return rows, rewards, over

    def _check_finite(self, name: str, seen: np.ndarray, suspect: np.ndarray) -> None:
        """Raises Diverged if something in ``seen`` is not finite, for which ``suspect`` may be the reason."""
        if np.isfinite(seen).all():
            return
        if np.issubdtype(suspect.dtype, np.floating) and not np.isfinite(suspect).all():
            raise Diverged(not_finite(self.stepper.name, name))
        raise Diverged("a value is NaN or infinite: lower the learning rate, or clip rewards with rewardClip")

    def _values(self, observation: np.ndarray, goes_on: np.ndarray) -> np.ndarray:
        """Values ``[M]`` of observations ``[M, ...]``, 0 where nothing goes on."""
        values = np.zeros(len(observation), np.float32)
        if goes_on.any():
            values[goes_on] = self.actor.value(torch.from_numpy(observation[goes_on])).numpy()
        return values

    def _transitions(self, rows: _Rows, complete: int) -> tuple[Transitions, Tensor]:
        """Those that begin in the first ``complete`` rows, and their priorities."""
        n_step = n_step_transitions(rows.reward, rows.terminated, rows.truncated, self.n_step, self.discount)
        time, environment = np.nonzero(rows.valid[:complete])
        reward, discount, length = (part[time, environment] for part in n_step)
        after = time + length
        next_observation = _take(rows.observation, after, environment)
        next_value = rows.value_of_state[after, environment]
        final = rows.final[after - 1, environment]
        apart = np.flatnonzero(final >= 0)
        next_observation[apart] = rows.finals[final[apart]]
        next_value[apart] = rows.final_values[final[apart]]
        error = reward + discount * next_value - rows.value_of_action[time, environment]
        self._check_finite("an observation", error, rows.observation)
        transitions = Transitions(
            observation=torch.from_numpy(_take(rows.observation, time, environment)),
            action=torch.from_numpy(_take(rows.action, time, environment)),
            reward=torch.from_numpy(reward),
            discount=torch.from_numpy(discount),
            next_observation=torch.from_numpy(next_observation),
        )
        return transitions, torch.from_numpy(np.abs(error) + np.float32(PRIORITY_EPSILON))


def _join(before: _Rows, after: _Rows) -> _Rows:
    shifted = np.where(after.final >= 0, after.final + len(before.finals), -1)
    return _Rows(*(np.concatenate(pair) for pair in zip(before, after._replace(final=shifted), strict=True)))


def _since(rows: _Rows, start: int) -> _Rows:
    """The rows from ``start`` on, which keep no memory of those before."""
    final = rows.final[start:]
    gone = len(rows.finals) - int((final >= 0).sum())
    kept = _Rows(*(column[start:].copy() for column in rows))
    return kept._replace(
        final=np.where(final >= 0, final - gone, -1),
        finals=rows.finals[gone:].copy(),
        final_values=rows.final_values[gone:].copy(),
    )


def _take(rows: np.ndarray, time: np.ndarray, environment: np.ndarray) -> np.ndarray:
    """``rows[time, environment]``; ``take`` copies long rows several times faster."""
    return rows.reshape(-1, *rows.shape[2:]).take(time * rows.shape[1] + environment, 0)


def transition_columns(observation: spaces.Space, action: spaces.Space) -> dict[str, Column]:
    """Returns the columns of the transitions of an environment with these spaces.

    Raises:
        BadConfiguration: observations or actions are not one array of numbers.
    """
    seen_shape = _array_shape(
        "observations", observation, "environment.wrappers: [{name: FlattenObservation}]"
    )
    taken_shape = _array_shape("actions", action, "environment.wrappers, or use ppo, a2c, a3c or impala")
    kind = np.float32 if np.issubdtype(observation.dtype, np.floating) else observation.dtype
    seen = Column(seen_shape, torch.from_numpy(np.empty(0, kind)).dtype)
    number = Column((), torch.float32)
    discrete = isinstance(action, spaces.Discrete)
    taken = Column((), torch.int64) if discrete else Column((math.prod(taken_shape),), torch.float32)
    return {
        "observation": seen,
        "action": taken,
        "reward": number,
        "discount": number,
        "next_observation": seen,
    }


def _array_shape(name: str, space: spaces.Space, remedy: str) -> tuple[int, ...]:
    """Returns a space's shape. Raises BadConfiguration with ``remedy`` if it has no array."""
    if space.shape is None or space.dtype is None or space.dtype.kind not in "biuf":
        raise BadConfiguration(
            f"spec.environment: {name} of {space} are not one array of numbers; "
            f"wrap the environment with {remedy}"
        )
    return tuple(space.shape)
