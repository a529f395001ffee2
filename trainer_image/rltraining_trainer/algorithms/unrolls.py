"""Unrolls: T steps of B environments, collected by a sampler, learnt from by an actor-critic learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.environments import EpisodeTracker, Stepper
from rltraining_trainer.networks import ActorCritic, Distribution


class Unroll(TypedDict):
    """What a sampler sends."""

    observation: Tensor
    """``[T+1, B, ...]`` x_0 .. x_T."""
    action: Tensor
    """``[T, B, ...]`` a_t, as drawn."""
    log_prob: Tensor
    """``[T, B]`` log μ(a_t|x_t) of the policy that acted."""
    reward: Tensor
    """``[T, B]`` r_t. Where an episode was truncated and its last observation is not in the unroll, the discounted value
    of that observation is added."""
    ended: Tensor
    """``[T, B]`` bool: nothing follows r_t, neither a step nor a value."""
    valid: Tensor
    """``[T, B]`` bool: False where the environment only reset itself."""
    first: Tensor
    """``[T+1, B]`` bool: x_t begins an episode."""
    state: tuple[Tensor, ...]
    """Recurrent state before x_0, ``[B, H]`` each."""
    episode_return: Tensor
    """``[K]`` undiscounted returns of the episodes that ended within the unroll."""
    episode_length: Tensor
    """``[K]`` their lengths in steps."""


def concatenate(unrolls: Sequence[Unroll]) -> Unroll:
    """Unrolls of one T side by side: B is the sum of theirs."""
    if len(unrolls) == 1:
        return unrolls[0]
    along = {"episode_return": 0, "episode_length": 0}
    columns = {
        name: torch.cat([unroll[name] for unroll in unrolls], along.get(name, 1))  # type: ignore[literal-required]
        for name in unrolls[0]
        if name != "state"
    }
    state = tuple(torch.cat(parts) for parts in zip(*(unroll["state"] for unroll in unrolls), strict=True))
    return Unroll(**columns, state=state)  # type: ignore[typeddict-item]


@dataclass
class UnrollCollector:
    """Acts with a network in B environments and keeps what happened, T steps at a time.

    Attributes:
        discount: γ, for the value of truncated episodes whose last observation is not in the unroll.
    """

    network: ActorCritic
    distribution: Distribution
    stepper: Stepper
    length: int
    discount: float
    seed: int

    def __post_init__(self) -> None:
        self._batch = self.stepper.environments.num_envs
        self._observation = torch.from_numpy(self.stepper.reset(self.seed))
        self._first = torch.ones(self._batch, dtype=torch.bool)
        self._state = self.network.initial_state(self._batch)
        self._episodes = EpisodeTracker(self._batch)

    @torch.no_grad()
    def collect(self) -> Unroll:
        """The next T steps, with the network's parameters as they are now. Every tensor is new: it may be sent as it is."""
        length, batch, distribution = self.length, self._batch, self.distribution
        observation, first, state = self._observation, self._first, self._state
        initial_state = state
        observations = torch.empty(length + 1, *observation.shape, dtype=observation.dtype)
        firsts = torch.empty(length + 1, batch, dtype=torch.bool)
        actions = torch.empty(length, batch, *distribution.action_shape, dtype=distribution.action_dtype)
        policies = torch.empty(length, batch, distribution.parameter_size)
        rewards = np.empty((length, batch), np.float32)
        ended = np.empty((length, batch), bool)
        valid = np.empty((length, batch), bool)
        noise = distribution.noise(length, batch)

        for t in range(length):
            observations[t], firsts[t] = observation, first
            policies[t], state = self.network.policy(observation, state, first)
            actions[t] = distribution.sample(policies[t], noise[t])
            step = self.stepper.step(distribution.to_environment(actions[t]))
            self._episodes.add(step)
            rewards[t], ended[t], valid[t] = step.reward, step.terminated, step.valid
            if step.final is not None:  # the stream goes on with the next episode: close this one here
                rewards[t] += self._value_of_truncated(step.final, step.truncated & ~step.terminated, state)
                ended[t] |= step.truncated
            observation, first = torch.from_numpy(step.observation), torch.from_numpy(step.first)

        observations[length], firsts[length] = observation, first
        self._observation, self._first, self._state = observation, first, state
        returns, lengths = self._episodes.take()
        return Unroll(
            observation=observations,
            action=actions,
            log_prob=distribution.log_prob(policies, actions),
            reward=torch.from_numpy(rewards),
            ended=torch.from_numpy(ended),
            valid=torch.from_numpy(valid),
            first=firsts,
            state=initial_state,
            episode_return=torch.from_numpy(returns),
            episode_length=torch.from_numpy(lengths),
        )

    def _value_of_truncated(
        self, final: np.ndarray, truncated: np.ndarray, state: tuple[Tensor, ...]
    ) -> np.ndarray:
        """γ V(last observation) ``[B]`` where an episode was truncated, else 0."""
        if not truncated.any():
            return np.zeros(self._batch, np.float32)
        return self.discount * self.network.value(torch.from_numpy(final), state).numpy() * truncated
