"""Ape-X DPG (Horgan et al. 2018, arXiv 1803.00933, appendix): deterministic policy gradient from prioritized replay."""

from __future__ import annotations

import numpy as np
import torch
from rltraining_api.algorithms import DdpgApex
from torch import Tensor

from rltraining_trainer.algorithms.apex import keep, learn, sample
from rltraining_trainer.algorithms.apex_learner import ApexLearner, Part
from rltraining_trainer.algorithms.exploration import GaussianNoise, OrnsteinUhlenbeckNoise, noise_scale
from rltraining_trainer.algorithms.in_parallel import both, can_be_parallel
from rltraining_trainer.algorithms.q_learning import squared_loss
from rltraining_trainer.algorithms.transitions import Acted, Actor, Transitions
from rltraining_trainer.networks import (
    DeterministicActions,
    DeterministicActorCritic,
    actor_parameter_count,
    build_deterministic,
    parameter_count,
)
from rltraining_trainer.world import World

replay = keep
"""The function of replay pods."""


def learner(world: World) -> None:
    """Updates the network from batches of the replay."""
    learn(world, DdpgLearner(_network(world)[0], world.settings, world.device))


def sampler(world: World) -> None:
    """Acts with exploration, and inserts transitions into the replay."""
    network, actions = _network(world)
    sample(world, DdpgActor(network, actions, world.settings), network)


def _network(world: World) -> tuple[DeterministicActorCritic, DeterministicActions]:
    normalize = world.spec.environment.normalize
    return build_deterministic(world.spec.network, *world.spaces, normalize=normalize)


class DdpgActor(Actor):
    """Acts with the policy and noise, which has a separate scale in each environment."""

    def __init__(
        self, network: DeterministicActorCritic, actions: DeterministicActions, settings: DdpgApex
    ) -> None:
        self._network, self._actions, self._settings = network, actions, settings
        self._warms_up_at_random = settings.warmup == "Random"
        self._noise = GaussianNoise() if settings.noise == "Gaussian" else OrnsteinUhlenbeckNoise()
        self._scale = torch.zeros(0, 1)
        self.normalizer = network.normalizer

    @property
    def memory(self) -> Tensor | None:
        return self._noise.memory

    @memory.setter
    def memory(self, memory: Tensor | None) -> None:
        self._noise.memory = memory

    def place(self, environments: range, total: int) -> bool:
        settings = self._settings
        scale = noise_scale(settings.exploration_noise, settings.exploration_spread, environments, total)
        self._scale = scale.unsqueeze(1)
        return settings.exploration_spread > 0

    def act(self, observation: Tensor, first: Tensor) -> Acted:
        network = self._network
        best = network.actor(observation)
        if self.warming_up and self._warms_up_at_random:
            action = torch.rand_like(best).mul_(2.0).sub_(1.0)
        else:
            action = (best + self._scale * self._noise.draw(best.shape, first)).clamp_(-1.0, 1.0)
        features = network.critic_torso(observation)
        values = network.value(torch.cat((features, features)), torch.cat((action, best)))
        return Acted(action, *values.chunk(2))

    def value(self, observation: Tensor) -> Tensor:
        network = self._network
        return network.value(network.critic_torso(observation), network.actor(observation))

    def to_environment(self, action: Tensor) -> np.ndarray:
        return self._actions.to_environment(action)


class DdpgLearner(ApexLearner[DeterministicActorCritic]):
    """Minimises ½ δ² of the critic, weighted by importance, and maximises Q(s, π(s)) of the actor (Silver et al. 2014)."""

    algorithm = "ddpgApex"
    steps_sizes = "actorLearningRate, criticLearningRate"

    def __init__(
        self,
        network: DeterministicActorCritic,
        settings: DdpgApex,
        device: torch.device | str = "cpu",
    ) -> None:
        size, actor_size = parameter_count(network), actor_parameter_count(network, network.actor)
        parts = (
            Part("actor_gradient_norm", actor_size, settings.actor_learning_rate),
            Part("critic_gradient_norm", size - actor_size, settings.critic_learning_rate),
        )
        super().__init__(network, settings, settings.optimizer, parts, device)
        self._action_clip = settings.action_gradient_clip
        self._is_parallel = can_be_parallel(network, settings.batch_size)

    def _backward(self, batch: Transitions, weights: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        # Compute both parts at the same time with the same parameters.
        features = self.network.critic_torso(batch["observation"])
        (errors, terms), actor_terms = both(
            lambda: self._update_critic(batch, features, weights),
            lambda: self._update_actor(batch["observation"], features.detach()),
            parallel=self._is_parallel,
        )
        return errors, terms | actor_terms

    def _update_critic(
        self, batch: Transitions, features: Tensor, weights: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Adds the critic's gradient. Returns its TD errors δ ``[B]`` and loss terms. ``features``: ``[B, F]`` of its torso."""
        target, after = self._target, batch["next_observation"]
        with torch.no_grad():
            next_value = target.value(target.critic_torso(after), target.actor(after))
            goal = torch.addcmul(batch["reward"], batch["discount"], next_value)
        value = self.network.value(features, batch["action"])
        errors = goal - value.detach()
        loss, slope = squared_loss(errors)
        (value * -(slope * weights)).sum().backward()  # for why not `value.backward(...)`, see dqn.py
        return errors, {"critic_loss": (loss * weights).mean(), "value": value.detach().mean()}

    def _update_actor(self, observation: Tensor, features: Tensor) -> dict[str, Tensor]:
        """Adds the actor's gradient. Returns its loss terms."""
        action = self.network.actor(observation)
        tried = action.detach().requires_grad_()
        tried_value = self.network.value(features, tried).sum()
        # The slope dQ/da. The critic gets no gradient.
        (slope,) = torch.autograd.grad(tried_value, tried)
        if self._action_clip is not None:
            slope = slope.clamp(-self._action_clip, self._action_clip)
        (action * -slope).sum().backward()
        return {"policy_value": tried_value.detach() / len(tried)}
