"""SAC, soft actor-critic with an automatic temperature (Haarnoja et al. 2018, arXiv 1812.05905).

The samplers act with the stochastic policy and insert transitions into a distributed replay. The
learner updates from batches of the replay, which limits the updates per environment step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from rltraining_api.algorithms import Sac
from rltraining_api.environment import Normalize
from rltraining_api.network import Network
from torch import Tensor, nn

from rltraining_trainer.algorithms.apex import keep, learn, sample
from rltraining_trainer.algorithms.apex_learner import ApexLearner, Part
from rltraining_trainer.algorithms.in_parallel import both, can_be_parallel
from rltraining_trainer.algorithms.transitions import Acted, Actor, Transitions
from rltraining_trainer.networks import (
    PolicyNetwork,
    SquashedGaussian,
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

LOG_STD_BOUNDS = (-20.0, 2.0)
"""Bounds of the policy's log standard deviation (the authors' softlearning)."""

replay = keep
"""The function of replay pods."""


def learner(world: World) -> None:
    """Updates the network from batches of the replay."""
    learn(world, SacLearner(*_network(world), world.settings, world.device))


def sampler(world: World) -> None:
    """Acts with the stochastic policy, and inserts transitions into the replay."""
    network, actions = _network(world)
    sample(world, SacActor(network, actions), network)


def _network(world: World) -> tuple[SacNetwork, SquashedGaussian]:
    return build_network(world.spec.network, *world.spaces, normalize=world.spec.environment.normalize)


class Temperature(nn.Module):
    """Stores the temperature α as its logarithm ``[]``."""

    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.zeros(()))


class SacNetwork(PolicyNetwork):
    """Computes the policy's parameters of a ``SquashedGaussian`` ``[N, 2·d]``, and contains twin critics and the temperature.

    Actions ``[N, d]`` are values before the tanh.
    """

    def __init__(self, actor: nn.Module, critics: TwinCritics, normalizer: Normalizer | None) -> None:
        super().__init__(normalizer)
        # The flat vector contains the actor, the temperature and the critics in this order.
        self.actor, self.temperature, self.critics = actor, Temperature(), critics

    def policy(self, observation: Tensor, state: State, first: Tensor | None = None) -> tuple[Tensor, State]:
        return self.actor(observation), state

    def values(self, observation: Tensor, action: Tensor) -> Tensor:
        """Returns Q(s, tanh(action)) of both critics ``[2, N]``."""
        return self.critics(observation, action.tanh())


def build_network(
    network: Network,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    *,
    normalize: Normalize | None = None,
) -> tuple[SacNetwork, SquashedGaussian]:
    """Returns the network for these spaces and the distribution of its actions.

    Raises like ``build_actor_critic``.
    """
    box = check_continuous("sac", network, action_space, normalize)
    actions = SquashedGaussian(box, LOG_STD_BOUNDS)
    normalizer = build_normalizer(normalize, observation_space)
    torso, features = build_torso(network, observation_space, normalizer)
    actor = nn.Sequential(torso, orthogonal(nn.Linear(features, actions.parameter_size), 0.01))
    (dimensions,) = actions.action_shape
    critics = build_twin_critics(network, observation_space, dimensions, normalizer)
    return SacNetwork(actor, critics, normalizer), actions


class Sample(NamedTuple):
    """Actions that the policy has sampled in N states."""

    action: Tensor
    """``[N, d]`` before the tanh."""
    log_prob: Tensor
    """``[N]`` log π(a|s) of the squashed action."""


def sample_action(
    network: SacNetwork, actions: SquashedGaussian, observation: Tensor, noise: Tensor
) -> Sample:
    """Samples actions with the reparameterization trick, so that they have gradients.

    ``noise``: ``[N, d]`` from the normal distribution.
    """
    parameters, _ = network.policy(observation, ())
    action = actions.sample(parameters, noise)
    return Sample(action, actions.log_prob(parameters, action))


class SacActor(Actor):
    """Acts with the stochastic policy, and uniformly at random until learning begins."""

    def __init__(self, network: SacNetwork, actions: SquashedGaussian) -> None:
        self._network, self._actions = network, actions
        self.normalizer = network.normalizer

    def act(self, observation: Tensor, first: Tensor) -> Acted:
        own = self._sample(observation)
        value = self._network.values(observation, own.action).amin(0)
        action, value_of_action = own.action, value
        if self.warming_up:
            # atanh of a uniform number in (-1, 1).
            action = torch.rand_like(own.action).logit_(1e-6).div_(2.0)
            value_of_action = self._network.values(observation, action).amin(0)
        return Acted(action, value_of_action, value - self._network.temperature.log.exp() * own.log_prob)

    def value(self, observation: Tensor) -> Tensor:
        own = self._sample(observation)
        values = self._network.values(observation, own.action)
        return values.amin(0) - self._network.temperature.log.exp() * own.log_prob

    def _sample(self, observation: Tensor) -> Sample:
        noise = self._actions.noise(len(observation))
        return sample_action(self._network, self._actions, observation, noise)

    def to_environment(self, action: Tensor) -> np.ndarray:
        return self._actions.to_environment(action)


class SacLearner(ApexLearner[SacNetwork]):
    """Updates the critics, the actor and the temperature, each with a separate optimizer.

    Actions are sampled with torch's global generator. Every checkpoint contains its state.
    """

    algorithm = "sac"
    steps_sizes = "learningRate"

    def __init__(
        self,
        network: SacNetwork,
        actions: SquashedGaussian,
        settings: Sac,
        device: torch.device | str = "cpu",
    ) -> None:
        nn.init.constant_(network.temperature.log, math.log(settings.initial_temperature))
        rate = settings.learning_rate
        size, actor_size = parameter_count(network), actor_parameter_count(network, network.actor)
        parts = (
            Part("actor_gradient_norm", actor_size, rate),
            Part("temperature_gradient_norm", 1, rate),
            Part("critic_gradient_norm", size - actor_size - 1, rate),
        )
        super().__init__(network, settings, settings.optimizer, parts, device)
        self._actions, self._is_parallel = actions, can_be_parallel(network, settings.batch_size)
        entropy = settings.target_entropy
        self._target_entropy = -float(actions.action_shape[0]) if entropy is None else entropy

    def _backward(self, batch: Transitions, weights: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        # Draw all noise first, and compute both parts at the same time with the same parameters.
        after_noise, noise = torch.randn_like(batch["action"]), torch.randn_like(batch["action"])
        (errors, critic_terms), actor_terms = both(
            lambda: self._update_critics(batch, weights, after_noise),
            lambda: self._update_actor(batch["observation"], noise),
            parallel=self._is_parallel,
        )
        return errors.abs().mean(0), critic_terms | actor_terms

    def _update_critics(
        self, batch: Transitions, weights: Tensor, noise: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Adds the critics' gradient. Returns their errors δ ``[2, B]`` and terms."""
        network, target, following = self.network, self._target, batch["next_observation"]

        # Compute the soft value of the next state by the smaller one of both target critics
        # (equation 3).
        with torch.no_grad():
            temperature = network.temperature.log.exp()
            after = sample_action(network, self._actions, following, noise)
            next_values = target.values(following, after.action).amin(0)
            goal = batch["reward"] + batch["discount"] * (next_values - temperature * after.log_prob)

        # Minimize ½ δ² of each critic (equation 5), weighted by importance.
        values = network.values(batch["observation"], batch["action"])
        errors = goal - values.detach()
        # For why not `values.backward(...)`, see dqn.py.
        (values * -(errors * weights)).sum().backward()
        loss = (0.5 * errors.square() * weights).sum(0).mean()
        return errors, {"critic_loss": loss, "value": values.detach().mean()}

    def _update_actor(self, observation: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """Adds the gradients of the actor and the temperature. Returns their terms."""
        network, log_temperature = self.network, self.network.temperature.log
        temperature = log_temperature.detach().exp()

        # Actor: minimize α log π(a|s) - Q(s, a) (equation 9), without a gradient of the critics.
        own = sample_action(network, self._actions, observation, noise)
        tried = own.action.detach().requires_grad_()
        tried_values = network.values(observation, tried).amin(0)
        (slope,) = torch.autograd.grad(tried_values.sum(), tried)
        (temperature * own.log_prob - (own.action * slope).sum(-1)).sum().backward()

        # Temperature: minimize α (-log π(a|s) - target entropy) (equation 18).
        log_prob = own.log_prob.detach()
        excess = -log_prob - self._target_entropy
        (log_temperature.exp() * excess.sum()).backward()
        return {
            "actor_loss": (temperature * log_prob - tried_values.detach()).mean(),
            "temperature_loss": (temperature * excess).mean(),
            "temperature": temperature,
            "entropy": -log_prob.mean(),
        }
