"""Ape-X DQN (Horgan et al. 2018, arXiv 1803.00933): double, dueling Q-learning from prioritized replay."""

from __future__ import annotations

import numpy as np
import torch
from rltraining_api.algorithms import DqnApex
from torch import Tensor

from rltraining_trainer.algorithms.apex import keep, learn, sample
from rltraining_trainer.algorithms.apex_learner import ApexLearner, Part
from rltraining_trainer.algorithms.exploration import apex_epsilon
from rltraining_trainer.algorithms.q_learning import (
    double_q_target,
    huber_loss,
    quantile_huber_loss,
    squared_loss,
)
from rltraining_trainer.algorithms.transitions import Acted, Actor, Transitions
from rltraining_trainer.networks import GreedyActions, QNetwork, build_q_network, parameter_count
from rltraining_trainer.networks.noisy import separate_noise
from rltraining_trainer.networks.unpack import MASKED
from rltraining_trainer.world import World

replay = keep
"""The function of replay pods."""


def learner(world: World) -> None:
    """Updates the network from batches of the replay."""
    learn(world, DqnLearner(_network(world)[0], world.settings, world.device))


def sampler(world: World) -> None:
    """Acts with exploration, and inserts transitions into the replay."""
    network, actions = _network(world)
    sample(world, DqnActor(network, actions, world.settings), network)


def _network(world: World) -> tuple[QNetwork, GreedyActions]:
    settings, normalize = world.settings, world.spec.environment.normalize
    return build_q_network(
        world.spec.network,
        *world.spaces,
        dueling=settings.dueling,
        quantiles=settings.quantiles,
        noisy=settings.noisy_layers,
        normalize=normalize,
    )


class DqnActor(Actor):
    """Acts ε-greedily, with a separate ε for each environment, or greedily with noise on the network's parameters."""

    def __init__(self, network: QNetwork, actions: GreedyActions, settings: DqnApex) -> None:
        self._network, self._actions, self._settings = network, actions, settings
        self._epsilon = torch.zeros(0)
        self.normalizer = network.normalizer
        separate_noise(network)

    def place(self, environments: range, total: int) -> bool:
        settings = self._settings
        largest = 0.0 if settings.noisy_layers else settings.exploration_epsilon
        self._epsilon = apex_epsilon(largest, settings.exploration_alpha, environments, total)
        return largest > 0

    def act(self, observation: Tensor, first: Tensor) -> Acted:
        values = self._network(observation)
        best, greedy = values.max(1)
        explores = torch.rand(len(values)) < self._epsilon
        action = torch.where(explores, self._random(values), greedy)
        return Acted(action, values.gather(1, action.unsqueeze(1)).squeeze(1), best)

    def value(self, observation: Tensor) -> Tensor:
        return self._network(observation).amax(1)

    def _random(self, values: Tensor) -> Tensor:
        """Draws actions ``[B]`` uniformly where ``values`` ``[B, n]`` are not ``MASKED``."""
        if self._network.mask is None:
            return torch.randint(values.shape[1], (len(values),))
        return torch.rand_like(values).masked_fill(values <= MASKED, -1.0).argmax(1)

    def to_environment(self, action: Tensor) -> np.ndarray:
        return self._actions.to_environment(action)


class DqnLearner(ApexLearner[QNetwork]):
    """Minimises the importance-weighted loss of the TD error of Q(s, a), or of the quantiles of the return."""

    algorithm = "dqnApex"
    steps_sizes = "learningRate"

    def __init__(self, network: QNetwork, settings: DqnApex, device: torch.device | str = "cpu") -> None:
        parts = (Part("gradient_norm", parameter_count(network), settings.learning_rate),)
        super().__init__(network, settings, settings.optimizer, parts, device)
        self._double_q = settings.double_q
        self._is_distributional = settings.quantiles > 1
        self._loss = huber_loss if settings.loss == "Huber" else squared_loss

    def _backward(self, batch: Transitions, weights: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        if self._is_distributional:
            return self._backward_quantiles(batch, weights)
        with torch.no_grad():
            next_values = self._target(batch["next_observation"])
            selector = self.network(batch["next_observation"]) if self._double_q else next_values
        target = double_q_target(batch["reward"], batch["discount"], next_values, selector)
        values, action = self.network(batch["observation"]), batch["action"].unsqueeze(1)
        value = values.detach().gather(1, action).squeeze(1)
        errors = target - value
        # Multiply the values by the loss's derivative, a constant, so that autograd differentiates only the network. If
        # `backward` received the derivative as a gradient, torch would import sympy, which takes 2 s in each process.
        loss, slope = self._loss(errors)
        slopes = torch.zeros_like(values).scatter_(1, action, -(slope * weights).unsqueeze(1))
        (values * slopes).sum().backward()
        return errors, {"loss": (loss * weights).mean(), "value": value.mean()}

    def _backward_quantiles(self, batch: Transitions, weights: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Like ``_backward``, for K quantiles of the return (Dabney et al. 2018, arXiv 1710.10044, algorithm 1)."""
        rows, following = torch.arange(len(weights), device=weights.device), batch["next_observation"]
        # Compute the target from the quantiles of the action with the largest mean.
        with torch.no_grad():
            next_quantiles = self._target.quantiles(following)
            selector = (
                self.network(following) if self._double_q else self._target.mean(next_quantiles, following)
            )
            chosen = next_quantiles[rows, selector.argmax(1)]
            target = batch["reward"].unsqueeze(1) + batch["discount"].unsqueeze(1) * chosen
        # Compare all pairs of quantiles. As above, autograd differentiates only the network.
        quantiles = self.network.quantiles(batch["observation"])[rows, batch["action"]]
        loss, slope = quantile_huber_loss(target, quantiles.detach())
        (quantiles * (slope * weights.unsqueeze(1))).sum().backward()
        value = quantiles.detach().mean(1)
        return target.mean(1) - value, {"loss": (loss * weights).mean(), "value": value.mean()}
