"""Collects transitions of n steps in a sampler's environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.algorithms.n_step import n_step_transitions
from rltraining_trainer.algorithms.transitions import PRIORITY_EPSILON, Acted, Actor, Transitions
from rltraining_trainer.dataflow.moments import NO_MOMENTS, moments_of
from rltraining_trainer.environments import EpisodeTracker, Stepper
from rltraining_trainer.environments.mistakes import not_finite
from rltraining_trainer.errors import Diverged


@dataclass(frozen=True)
class Block:
    """The result of T steps of B environments. No later block changes its tensors."""

    transitions: Transitions
    priorities: Tensor
    """``[K]`` |δ| + ``PRIORITY_EPSILON``, with the actor's values."""
    steps: int
    """Steps in this block, without resets."""
    pending: int
    """Steps without a transition yet: all steps = all transitions + pending."""
    episodes: int
    """Episodes that ended in this block."""
    episode_return: Tensor
    """``[E]`` undiscounted returns of ended episodes, in the order in which the episodes began (see ``EpisodeTracker``).

    Only of the greedier half of all environments, if they explore to different degrees."""
    episode_length: Tensor
    """``[E]`` lengths of these episodes in steps."""
    moments: Tensor
    """``[1, 1 + 2·d]`` float64, moments of the observations, or ``[0, 0]`` without normalisation."""


class Rows(NamedTuple):
    """R rows of B environments: observations, actions, and the results of the actions."""

    observation: np.ndarray
    """``[R, B, ...]``."""
    action: np.ndarray
    """``[R, B, ...]``. The fields from here to ``discarded`` are ``[R, B]``."""
    value_of_action: np.ndarray
    value_of_state: np.ndarray
    reward: np.ndarray
    """Clipped and scaled, 0 where ``valid`` is False."""
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    discarded: np.ndarray
    """The episode was discarded before this row, which is not a step."""
    final: np.ndarray
    """``[R, B]`` index in ``finals`` of the last observation of the episode that ended here. -1: in the next row."""
    finals: np.ndarray
    """``[F, ...]`` last observations without an action, in the order of rows."""
    final_values: np.ndarray
    """``[F]`` values of ``finals``, 0 where the episode terminated."""


@dataclass
class TransitionCollector:
    """Acts in B environments, T steps at a time, and makes transitions of n steps.

    A transition is complete when the actor has acted on its last observation. Its first priority therefore needs only values
    that acting computes anyway. Last observations without an action (see ``Stepper``) are evaluated separately.

    Attributes:
        length: T.
        n_step, discount: n and γ.
        reward_clip: rewards are clipped to ±``reward_clip``. None: they are not.
        reward_scale: clipped rewards are multiplied by this.
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
        self._carried: Rows | None = None
        self.place(self.environments, self.total)

    def place(self, environments: range, total: int) -> None:
        """Sets the numbers of the environments among ``total``, after the number of samplers has changed."""
        self.environments, self.total = environments, total
        differ = self.actor.place(environments, total)
        self._reported = np.array(environments) >= (total // 2 if differ else 0)

    @torch.no_grad()
    def collect(self) -> Block:
        """Takes the next T steps, with the network's present parameters.

        Raises:
            Diverged: an observation, a reward or a value is NaN or infinite.
        """
        # Act, and count the returns of episodes that end.
        new, rewards, over = self._steps()
        returns, lengths = self._episodes.add(rewards, over, new.valid, self._reported, new.discarded)
        self.new_rows = new  # for subclasses

        rows = new if self._carried is None else _join(self._carried, new)
        # Truncate discarded episodes at the previous row, which may belong to the previous block.
        rows.truncated[:-1] |= rows.discarded[1:]

        # Make the transitions that are complete, and carry the other rows over to the next block.
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

    def _steps(self) -> tuple[Rows, np.ndarray, np.ndarray]:
        """Returns the next T rows, the environments' rewards ``[T, B]``, and ``[T, B]`` where episodes ended."""
        # Allocate the columns.
        length, observation, first = self.length, self._observation, self._first
        shape = (length, len(observation))
        observations = np.empty((length, *observation.shape), observation.dtype)
        rewards = np.empty(shape, np.float32)
        firsts, terminated, truncated, over, valid = (np.empty(shape, bool) for _ in range(5))
        discarded = np.zeros(shape, bool)
        final, finals, final_values = np.full(shape, -1), [observation[:0]], [np.zeros(0, np.float32)]
        observation_rows, first_rows = (torch.from_numpy(array).unbind() for array in (observations, firsts))
        acted: list[Acted] = []

        # Act and step.
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
                final_values.append(self._values(finals[-1], continues=~step.terminated[ended]))
            observation, first = step.observation, step.first

        # Check the rewards, clip and scale them.
        self._observation, self._first = observation, first
        self.new_first = np.concatenate((firsts, first[None]))  # for subclasses
        self.stepper.check_rewards(rewards[valid])
        learnt = rewards if self.reward_clip is None else rewards.clip(-self.reward_clip, self.reward_clip)
        action, value_of_action, value_of_state = (
            torch.stack(parts).numpy() for parts in zip(*acted, strict=True)
        )
        rows = Rows(
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

    def _check_finite(self, errors: np.ndarray, observations: np.ndarray) -> None:
        """Raises Diverged if a TD error is not finite, because of an observation or of a value."""
        if np.isfinite(errors).all():
            return
        if np.issubdtype(observations.dtype, np.floating) and not np.isfinite(observations).all():
            raise Diverged(not_finite(self.stepper.name, "an observation"))
        raise Diverged("a value is NaN or infinite: lower the learning rate, or clip rewards with rewardClip")

    def _values(self, observation: np.ndarray, continues: np.ndarray) -> np.ndarray:
        """Returns values ``[M]`` of observations ``[M, ...]``, 0 where the episode terminated."""
        values = np.zeros(len(observation), np.float32)
        if continues.any():
            values[continues] = self.actor.value(torch.from_numpy(observation[continues])).numpy()
        return values

    def _transitions(self, rows: Rows, complete: int) -> tuple[Transitions, Tensor]:
        """Returns the transitions that begin in the first ``complete`` rows, and their priorities."""
        n_step = n_step_transitions(rows.reward, rows.terminated, rows.truncated, self.n_step, self.discount)
        time, environment = np.nonzero(rows.valid[:complete])
        reward, discount, length = (part[time, environment] for part in n_step)

        # Take the next observations and their values from a later row, or from ``finals``.
        after = time + length
        next_observation = _take(rows.observation, after, environment)
        next_value = rows.value_of_state[after, environment]
        final = rows.final[after - 1, environment]
        apart = np.flatnonzero(final >= 0)
        next_observation[apart] = rows.finals[final[apart]]
        next_value[apart] = rows.final_values[final[apart]]

        # Compute the TD errors, which give the first priorities.
        error = reward + discount * next_value - rows.value_of_action[time, environment]
        self._check_finite(error, rows.observation)
        transitions = Transitions(
            observation=torch.from_numpy(_take(rows.observation, time, environment)),
            action=torch.from_numpy(_take(rows.action, time, environment)),
            reward=torch.from_numpy(reward),
            discount=torch.from_numpy(discount),
            next_observation=torch.from_numpy(next_observation),
        )
        return transitions, torch.from_numpy(np.abs(error) + np.float32(PRIORITY_EPSILON))


def _join(before: Rows, after: Rows) -> Rows:
    """Returns the rows of both, one after the other."""
    shifted = np.where(after.final >= 0, after.final + len(before.finals), -1)
    return Rows(*(np.concatenate(pair) for pair in zip(before, after._replace(final=shifted), strict=True)))


def _since(rows: Rows, start: int) -> Rows:
    """Returns copies of the rows from ``start`` on."""
    final = rows.final[start:]
    gone = len(rows.finals) - int((final >= 0).sum())
    kept = Rows(*(column[start:].copy() for column in rows))
    return kept._replace(
        final=np.where(final >= 0, final - gone, -1),
        finals=rows.finals[gone:].copy(),
        final_values=rows.final_values[gone:].copy(),
    )


def _take(rows: np.ndarray, time: np.ndarray, environment: np.ndarray) -> np.ndarray:
    """Returns ``rows[time, environment]``. ``take`` copies long rows several times faster."""
    return rows.reshape(-1, *rows.shape[2:]).take(time * rows.shape[1] + environment, 0)
