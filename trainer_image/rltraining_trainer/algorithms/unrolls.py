"""Unrolls: T steps of B environments, collected by a sampler, learnt from by an actor-critic learner."""

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
    """What a sampler sends."""

    observation: Tensor
    """``[T+1, B, ...]`` x_0 .. x_T."""
    action: Tensor
    """``[T, B, ...]`` a_t, as drawn."""
    log_prob: Tensor
    """``[T, B]`` log μ(a_t|x_t) of the policy that acted."""
    reward: Tensor
    """``[T, B]`` r_t as it is learnt from: clipped and scaled. Where an episode was truncated and its last observation is
    not in the unroll, the discounted value of that observation is added."""
    ended: Tensor
    """``[T, B]`` bool: nothing follows r_t, neither a step nor a value."""
    valid: Tensor
    """``[T, B]`` bool: False where the environment only reset itself."""
    first: Tensor
    """``[T+1, B]`` bool: x_t begins an episode."""
    state: tuple[Tensor, ...]
    """Recurrent state before x_0, ``[B, H]`` each."""
    episodes: Tensor
    """``[B]`` int64, how many episodes ended within the unroll."""
    episode_return: Tensor
    """``[K]`` undiscounted returns of ended episodes, in the order in which these began: see ``EpisodeTracker``."""
    episode_length: Tensor
    """``[K]`` their lengths in steps."""
    moments: Tensor
    """``[U, 1 + 2·d]`` float64, of each of the U unrolls: ``moments_of`` observations and discounted returns, which the learner
    merges into the network's ``normalizer``. ``[0, 0]`` of a network without one."""


def concatenate(unrolls: Sequence[Unroll]) -> Unroll:
    """Unrolls of one T side by side: B is the sum of theirs."""
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
    """The unroll on ``device``; what is there already is not copied."""
    if device.type == "cpu":
        return unroll
    columns = {name: part.to(device) for name, part in unroll.items() if isinstance(part, Tensor)}
    return Unroll(**columns, state=tuple(part.to(device) for part in unroll["state"]))  # type: ignore[typeddict-item]


class RewardSettings(Protocol):
    """The settings of all algorithms that samplers use."""

    @property
    def discount(self) -> float: ...
    @property
    def reward_clip(self) -> float | None: ...
    @property
    def reward_scale(self) -> float: ...


class ActingNetwork(Protocol):
    """A network of which unrolls are collected, such as an actor-critic network."""

    normalizer: Normalizer | None

    def initial_state(self, batch: int) -> State: ...

    def acting(self) -> Callable[[Tensor, State, Tensor | None], tuple[Tensor, State]]:
        """Returns a function like ``PolicyNetwork.policy``, which is used for one unroll."""
        ...

    def value(self, observation: Tensor, state: State) -> Tensor:
        """Returns values ``[B]`` of observations that follow ``state``."""
        ...


class Exploration(Protocol):
    """How actions are sampled, such as a distribution."""

    def noise(self, *batch: int) -> Tensor: ...
    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor: ...
    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor: ...
    def to_environment(self, action: Tensor) -> np.ndarray: ...


@dataclass
class UnrollCollector:
    """Acts with a network in B environments and keeps what happened, T steps at a time.

    Attributes:
        discount: γ, for the value of truncated episodes whose last observation is not in the unroll.
        reward_clip: rewards are learnt from as if within ±``reward_clip`` (None: as they are),
        reward_scale: then normalised if the network normalises rewards, and multiplied by this. Here, not in the learner:
            values, which may be added, are of that scale.
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
        """The next T steps, with the network's parameters as they are now. Every tensor is new: it may be sent as it is.

        Raises:
            Diverged: an observation or a reward is NaN, infinite or too large.
        """
        length, batch, distribution = self.length, self._batch, self.distribution
        observation, first, state = self._observation, self._first, self._state
        policy_of, initial_state = self.network.acting(), state
        # What each step leaves is kept in numpy arrays: writing a row costs a third of what it does in a tensor.
        observations = np.empty((length + 1, *observation.shape), observation.dtype)
        firsts = np.empty((length + 1, batch), bool)
        rewards = np.empty((length, batch), np.float32)
        terminated, truncated, over, valid = (np.empty((length, batch), bool) for _ in range(4))
        discarded = np.zeros((length, batch), bool)
        bootstraps = np.zeros((length, batch), np.float32)
        # The network sees a step's row as a tensor on the same memory, whatever kind of array the environment gave;
        # of a beginning only if there is a state to be forgotten.
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
        """(rewards ``[T, B]`` by the statistics of the network and of this unroll, and the moments of this unroll)."""
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
        """Σ γ^k r over the episode so far, ``[T, B]``: what rewards are measured by."""
        running, returns = self._discounted_return, np.empty(rewards.shape)
        for t in range(len(rewards)):
            running = np.where(valid[t], self.discount * running + rewards[t], running)
            returns[t] = running
            running = np.where(ended[t], 0.0, running)
        self._discounted_return = running
        return returns
