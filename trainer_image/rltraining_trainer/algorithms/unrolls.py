"""Unrolls: T steps of B environments, which a sampler collects and from which a learner updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypedDict

import numpy as np
import torch
from torch import Tensor

from rltraining_trainer.dataflow.moments import NO_MOMENTS, moments_of
from rltraining_trainer.environments import EpisodeTracker, Stepper
from rltraining_trainer.networks import State
from rltraining_trainer.networks.normalizer import CLIP, Normalizer


class Unroll(TypedDict):
    """T steps of B environments, as a sampler sends them."""

    observation: Tensor
    """``[T+1, B, ...]`` x_0 .. x_T."""
    action: Tensor
    """``[T, B, ...]`` a_t, as sampled from the policy."""
    log_prob: Tensor
    """``[T, B]`` log μ(a_t|x_t) of the policy that acted."""
    reward: Tensor
    """``[T, B]`` r_t, clipped and scaled. If an episode was truncated and its last observation is not in the unroll, r_t
    includes the discounted value of that observation."""
    ended: Tensor
    """``[T, B]`` bool: neither a step nor a bootstrap value follows r_t."""
    valid: Tensor
    """``[T, B]`` bool: False where the environment only reset itself."""
    first: Tensor
    """``[T+1, B]`` bool: x_t begins an episode."""
    state: tuple[Tensor, ...]
    """Recurrent state before x_0, ``[B, H]`` each."""
    episodes: Tensor
    """``[B]`` int64, number of episodes that ended within the unroll."""
    episode_return: Tensor
    """``[K]`` undiscounted returns of ended episodes, in the order of their starts (see ``EpisodeTracker``)."""
    episode_length: Tensor
    """``[K]`` lengths of these episodes in steps."""
    moments: Tensor
    """``[U, 1 + 2·d]`` float64, for each of the U unrolls the ``moments_of`` observations and discounted returns, which the
    learner merges into the network's ``normalizer``. ``[0, 0]`` if the network has no normalizer."""


def concatenate(unrolls: Sequence[Unroll]) -> Unroll:
    """Concatenates unrolls of equal T along their environments, so that the new B is the sum of theirs."""
    if len(unrolls) == 1:
        return unrolls[0]
    along = {"episodes": 0, "episode_return": 0, "episode_length": 0, "moments": 0}
    columns = {
        name: torch.cat([unroll[name] for unroll in unrolls], along.get(name, 1))  # type: ignore[literal-required]
        for name in unrolls[0]
        if name != "state"
    }
    state = tuple(torch.cat(parts) for parts in zip(*(unroll["state"] for unroll in unrolls), strict=True))
    return Unroll(**columns, state=state)  # type: ignore[typeddict-item]


def move(unroll: Unroll, device: torch.device) -> Unroll:
    """Returns the unroll on ``device``. Tensors that are already on the device are not copied."""
    if device.type == "cpu":
        return unroll
    columns = {name: part.to(device) for name, part in unroll.items() if isinstance(part, Tensor)}
    return Unroll(**columns, state=tuple(part.to(device) for part in unroll["state"]))  # type: ignore[typeddict-item]


class RewardSettings(Protocol):
    """The settings that every algorithm has for the rewards of its samplers."""

    @property
    def discount(self) -> float: ...
    @property
    def reward_clip(self) -> float | None: ...
    @property
    def reward_scale(self) -> float: ...


class ActingNetwork(Protocol):
    """A network with which unrolls are collected, such as an actor-critic network."""

    normalizer: Normalizer | None

    def initial_state(self, batch: int) -> State: ...

    def acting(self) -> Callable[[Tensor, State, Tensor | None], tuple[Tensor, State]]:
        """Returns a function like ``PolicyNetwork.policy``, which is used for one unroll."""
        ...

    def value(self, observation: Tensor, state: State) -> Tensor:
        """Returns values ``[B]`` of observations that follow ``state``."""
        ...


class Exploration(Protocol):
    """Samples actions from the output of the network, such as a distribution."""

    def noise(self, *batch: int) -> Tensor: ...
    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor: ...
    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor: ...
    def to_environment(self, action: Tensor) -> np.ndarray: ...


@dataclass
class UnrollCollector:
    """Acts with a network in B environments, and collects unrolls of T steps.

    Attributes:
        discount: γ, for the value of truncated episodes whose last observation is not in the unroll.
        reward_clip: rewards are clipped to ±``reward_clip``. None: they are not clipped.
        reward_scale: clipped rewards are normalised, if the network normalises rewards, and multiplied by this. The sampler
            scales instead of the learner, because the values that it may add to rewards have that scale.
    """

    network: ActingNetwork
    distribution: Exploration
    stepper: Stepper
    length: int
    discount: float
    reward_clip: float | None
    reward_scale: float
    seed: int

    @classmethod
    def of(
        cls,
        settings: RewardSettings,
        length: int,
        network: ActingNetwork,
        distribution: Exploration,
        stepper: Stepper,
        seed: int,
    ) -> Self:
        """Returns a collector of ``length`` steps with the settings of an algorithm."""
        discount, clip, scale = settings.discount, settings.reward_clip, settings.reward_scale
        return cls(network, distribution, stepper, length, discount, clip, scale, seed)

    reported: np.ndarray | None = None
    """``[B]`` bool, the environments whose episodes are reported. None: all."""

    def __post_init__(self) -> None:
        self._batch = self.stepper.environments.num_envs
        self._observation = self.stepper.reset(self.seed)
        self._first = np.ones(self._batch, bool)
        self._state = self.network.initial_state(self._batch)
        self._episodes = EpisodeTracker(self._batch)
        self._discounted_return = np.zeros(self._batch)

    @torch.no_grad()
    def collect(self) -> Unroll:
        """Takes the next T steps with the current parameters, and returns them. All tensors are new, so they need no copy.

        Raises:
            Diverged: an observation or a reward is NaN, infinite or too large.
        """
        length, batch, distribution = self.length, self._batch, self.distribution
        observation, first, state = self._observation, self._first, self._state
        policy_of, initial_state = self.network.acting(), state
        # Store the steps in numpy arrays: writing a row takes a third of the time that it takes in a tensor.
        observations = np.empty((length + 1, *observation.shape), observation.dtype)
        firsts = np.empty((length + 1, batch), bool)
        rewards = np.empty((length, batch), np.float32)
        terminated, truncated, over, valid = (np.empty((length, batch), bool) for _ in range(4))
        discarded = np.zeros((length, batch), bool)
        bootstraps = np.zeros((length, batch), np.float32)
        # The network receives each row as a tensor in the same memory, whatever type of array the environment returns.
        # It receives the starts of episodes only if it has a recurrent state to reset.
        observation_rows = torch.from_numpy(observations).unbind()
        first_rows = torch.from_numpy(firsts).unbind() if state else [None] * length
        actions, policies = [], []
        noise = distribution.noise(length, batch).unbind()

        for t in range(length):
            observations[t], firsts[t] = observation, first
            policy, state = policy_of(observation_rows[t], state, first_rows[t])
            action = distribution.sample(policy, noise[t])
            step = self.stepper.step(distribution.to_environment(action))
            policies.append(policy)
            actions.append(action)
            rewards[t], valid[t], over[t] = step.reward, step.valid, step.over
            terminated[t], truncated[t] = step.terminated, step.truncated
            if step.discarded is not None:
                discarded[t] = step.discarded
            if step.final is not None and step.truncated.any():
                value = self.network.value(torch.from_numpy(step.final), state).numpy()
                bootstraps[t] = self.discount * value * (step.truncated & ~step.terminated)
            observation, first = step.observation, step.first

        observations[length], firsts[length] = observation, first
        self._observation, self._first, self._state = observation, first, state
        self.stepper.check_rewards(rewards[valid])
        returns, lengths = self._episodes.add(rewards, over, valid, self.reported, discarded)
        if self.reward_clip is not None:
            rewards = rewards.clip(-self.reward_clip, self.reward_clip)
        rewards, moments = self._normalize(observations, rewards, terminated | truncated | discarded, valid)
        action, policy = torch.stack(actions), torch.stack(policies)
        return Unroll(
            observation=torch.from_numpy(observations),
            action=action,
            log_prob=distribution.log_prob(policy, action),
            reward=torch.from_numpy(rewards * np.float32(self.reward_scale) + bootstraps),
            ended=torch.from_numpy(
                terminated if self.stepper.shows_last_observation else terminated | truncated
            ),
            valid=torch.from_numpy(valid),
            first=torch.from_numpy(firsts),
            state=initial_state,
            episodes=torch.from_numpy(over.sum(0)),
            episode_return=torch.from_numpy(returns),
            episode_length=torch.from_numpy(lengths),
            moments=moments,
        )

    def _normalize(
        self, observations: np.ndarray, rewards: np.ndarray, ended: np.ndarray, valid: np.ndarray
    ) -> tuple[np.ndarray, Tensor]:
        """Normalises rewards ``[T, B]`` by the statistics of the network and of this unroll.

        Returns the rewards and the moments of this unroll.
        """
        normalizer = self.network.normalizer
        if normalizer is None:
            return rewards, NO_MOMENTS
        columns = []
        if normalizer.shape is not None:
            rows = observations[:-1].reshape(rewards.size, *observations.shape[2:])
            columns.append(normalizer.vectors(rows))
        if normalizer.rewards:
            columns.append(self._discounted_returns(rewards, ended, valid).reshape(-1, 1))
        moments = moments_of(torch.from_numpy(np.concatenate(columns, 1, dtype=np.float64)))
        if normalizer.rewards:
            rewards = (rewards * np.float32(normalizer.reward_scale(moments))).clip(-CLIP, CLIP)
        return rewards, moments.unsqueeze(0)

    def _discounted_returns(self, rewards: np.ndarray, ended: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Returns Σ γ^k r over the episode so far, ``[T, B]``. The variance of these returns normalises rewards."""
        running, returns = self._discounted_return, np.empty(rewards.shape)
        for t in range(len(rewards)):
            running = np.where(valid[t], self.discount * running + rewards[t], running)
            returns[t] = running
            running = np.where(ended[t], 0.0, running)
        self._discounted_return = running
        return returns
