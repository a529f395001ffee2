"""TD3, twin delayed deterministic policy gradients (Fujimoto et al. 2018, arXiv 1802.09477).

The samplers act with the policy and noise, and insert transitions into a distributed replay. The
learner updates from batches of the replay, which limits the updates per environment step.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium import spaces
from rltraining_api.algorithms import Td3
from rltraining_api.environment import Normalize
from rltraining_api.network import Network
from torch import Tensor, nn

from rltraining_trainer.algorithms.apex import keep, learn, sample
from rltraining_trainer.algorithms.apex_learner import ApexLearner, Part
from rltraining_trainer.algorithms.transitions import Acted, Actor, Transitions
from rltraining_trainer.networks import (
    DeterministicActions,
    PolicyNetwork,
    State,
    actor_parameter_count,
    parameter_count,
)
from rltraining_trainer.networks.build import build_normalizer, build_twin_critics, check_continuous
from rltraining_trainer.networks.build_torso import build_torso
from rltraining_trainer.networks.critics import TwinCritics
from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.torsos import orthogonal
from rltraining_trainer.world import World

replay = keep
"""The function of replay pods."""


def learner(world: World) -> None:
    """Updates the network from batches of the replay."""
    learn(world, Td3Learner(_network(world)[0], world.settings, world.device))


def sampler(world: World) -> None:
    """Acts with the policy and noise, and inserts transitions into the replay."""
    network, actions = _network(world)
    sample(world, Td3Actor(network, actions, world.settings.exploration_noise), network)


def _network(world: World) -> tuple[Td3Network, DeterministicActions]:
    return build_network(world.spec.network, *world.spaces, normalize=world.spec.environment.normalize)


class Td3Network(PolicyNetwork):
    """Computes π(s) ``[N, d]`` in [-1, 1], and Q(s, a) of twin critics."""

    def __init__(self, actor: nn.Module, critics: TwinCritics, normalizer: Normalizer | None) -> None:
        super().__init__(normalizer)
        # The flat vector contains the actor's parameters before those of the critics.
        self.actor, self.critics = actor, critics

    def policy(self, observation: Tensor, state: State, first: Tensor | None = None) -> tuple[Tensor, State]:
        return self.actor(observation), state


def build_network(
    network: Network,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    *,
    normalize: Normalize | None = None,
) -> tuple[Td3Network, DeterministicActions]:
    """Returns the network for these spaces and the conversion of the actor's output to actions.

    Raises like ``build_actor_critic``.
    """
    box = check_continuous("td3", network, action_space, normalize)
    dimensions = math.prod(box.shape)
    normalizer = build_normalizer(normalize, observation_space)
    torso, features = build_torso(network, observation_space, normalizer)
    actor = nn.Sequential(torso, orthogonal(nn.Linear(features, dimensions), 0.01), nn.Tanh())
    critics = build_twin_critics(network, observation_space, dimensions, normalizer)
    return Td3Network(actor, critics, normalizer), DeterministicActions(box)


class Td3Actor(Actor):
    """Acts with the policy and Gaussian noise, and uniformly at random until learning begins."""

    def __init__(self, network: Td3Network, actions: DeterministicActions, noise: float) -> None:
        self._network, self._actions, self._noise = network, actions, noise
        self.normalizer = network.normalizer

    def act(self, observation: Tensor, first: Tensor) -> Acted:
        best = self._network.actor(observation)
        if self.warming_up:
            action = torch.rand_like(best).mul_(2.0).sub_(1.0)
        else:
            action = (best + self._noise * torch.randn_like(best)).clamp_(-1.0, 1.0)
        values = self._value(torch.cat((observation, observation)), torch.cat((action, best)))
        return Acted(action, *values.chunk(2))

    def value(self, observation: Tensor) -> Tensor:
        return self._value(observation, self._network.actor(observation))

    def _value(self, observation: Tensor, action: Tensor) -> Tensor:
        return self._network.critics(observation, action).amin(0)

    def to_environment(self, action: Tensor) -> np.ndarray:
        return self._actions.to_environment(action)


class Td3Learner(ApexLearner[Td3Network]):
    """Updates the critics, and less often the actor, each with a separate optimizer.

    The noise of the targets is drawn with torch's global generator. Every checkpoint contains its
    state.
    """

    algorithm = "td3"
    steps_sizes = "learningRate"

    def __init__(self, network: Td3Network, settings: Td3, device: torch.device | str = "cpu") -> None:
        rate = settings.learning_rate
        size, actor_size = parameter_count(network), actor_parameter_count(network, network.actor)
        parts = (
            Part("actor_gradient_norm", actor_size, rate, settings.policy_delay),
            Part("critic_gradient_norm", size - actor_size, rate),
        )
        super().__init__(network, settings, settings.optimizer, parts, device)
        self._settings = settings
        self._actor_terms: dict[str, Tensor] = {}  # terms of the newest update of the actor

    def _backward(self, batch: Transitions, weights: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        network, target, settings = self.network, self._target, self._settings
        observation, after = batch["observation"], batch["next_observation"]

        # Compute the value of the next state by the smaller one of both target critics, for the
        # target policy's action with noise (equations 10 and 14).
        with torch.no_grad():
            action = target.actor(after)
            largest = settings.target_noise_clip
            noise = (settings.target_noise * torch.randn_like(action)).clamp_(-largest, largest)
            next_value = target.critics(after, (action + noise).clamp_(-1.0, 1.0)).amin(0)
            goal = batch["reward"] + batch["discount"] * next_value

        # Critics: minimize ½ δ² of each, weighted by importance.
        values = network.critics(observation, batch["action"])
        errors = goal - values.detach()
        # For why not `values.backward(...)`, see dqn.py.
        (values * -(errors * weights)).sum().backward()

        # Actor: maximize the first critic's value, without a gradient of the critic (algorithm 1).
        if self._is_due(settings.policy_delay):
            action = network.actor(observation)
            tried = action.detach().requires_grad_()
            tried_value = network.critics[0](observation, tried)
            (slope,) = torch.autograd.grad(tried_value.sum(), tried)
            (action * -slope).sum().backward()
            self._actor_terms = {"policy_value": tried_value.detach().mean()}

        terms = {
            "critic_loss": (0.5 * errors.square() * weights).sum(0).mean(),
            "value": values.detach().mean(),
            **self._actor_terms,
        }
        return errors.abs().mean(0), terms
