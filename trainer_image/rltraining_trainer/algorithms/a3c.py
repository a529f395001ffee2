"""A3C: asynchronous advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783). Also the gradient of A2C."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from rltraining_api.algorithms import A2c, A3c
from rltraining_api.job import JobSpec
from torch import Tensor

from rltraining_trainer.algorithms.divergence import diverged
from rltraining_trainer.algorithms.optimizers import clip_runs
from rltraining_trainer.algorithms.returns import generalized_advantages, moments, n_step_returns, normalize
from rltraining_trainer.algorithms.rollout_learner import TERMS
from rltraining_trainer.algorithms.rollouts import learn, sample
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.networks import ActorCritic, Distribution
from rltraining_trainer.world import Gradient, World


def learner(world: World) -> None:
    """Applies the gradients of samplers as they arrive."""
    learn(world, AdvantageActorCritic)


def sampler(world: World) -> None:
    """Acts for ``rolloutLength`` steps, sends the gradient, and gets the newest parameters."""
    sample(world, AdvantageActorCritic)


class _Rollout(NamedTuple):
    unroll: Unroll
    log_prob: Tensor
    """``[T, B]``, requires gradients, like ``entropy`` and ``values``."""
    entropy: Tensor
    values: Tensor
    returns: Tensor
    advantages: Tensor


class AdvantageActorCritic:
    """Computes one gradient of each rollout (see ``RolloutGradients``).

    In mode Async the gradient is clipped here, as A3C's workers do. In mode Sync the learner clips the mean over samplers.

    Args:
        parameters: ``[N]``, ``flatten_parameters(network)``. Gradients are computed in its ``grad``.
    """

    exchanges = 1

    def __init__(
        self,
        network: ActorCritic,
        distribution: Distribution,
        settings: A3c | A2c,
        parameters: Tensor,
    ) -> None:
        assert parameters.grad is not None
        self._network, self._distribution, self._settings = network, distribution, settings
        self._gradient = parameters.grad
        self._clip = settings.gradient_clip if settings.aggregate.mode == "Async" else None
        self.averages = settings.loss_reduction == "Mean"
        self._rollout: _Rollout

    @staticmethod
    def exchanges_per_rollout(spec: JobSpec, settings: A3c | A2c, samplers: int) -> int:
        return 1

    @staticmethod
    def ends_rollout(settings: A3c | A2c, terms: Mapping[str, float]) -> bool:
        return False

    def begin(self, unroll: Unroll, remaining: float = 1.0, exchanges: int | None = None) -> Tensor | None:
        """Computes policy, values and returns. The parameters must not change until ``gradient`` was called."""
        # Compute the outputs of the network for all steps, and the values of the last observations.
        settings, valid = self._settings, unroll["valid"]
        policies, values = self._network.unroll(unroll["observation"], unroll["state"], unroll["first"])
        log_prob, entropy = self._distribution.log_prob_and_entropy(policies[:-1], unroll["action"])

        # Compute returns and advantages.
        baseline = values.detach()
        rewards, discounts = unroll["reward"], settings.discount * ~unroll["ended"]
        if settings.n_step is not None:
            returns = n_step_returns(rewards, discounts, baseline, settings.n_step, valid)
            advantages = returns - baseline[:-1]
        else:
            advantages = generalized_advantages(rewards, discounts, baseline, settings.gae_lambda, valid)
            returns = advantages + baseline[:-1]
        self._rollout = _Rollout(unroll, log_prob, entropy, values[:-1], returns, advantages)
        return moments(advantages, valid) if settings.advantage_normalization else None

    def share(self, totals: Tensor) -> None:
        advantages = normalize(self._rollout.advantages, totals)
        self._rollout = self._rollout._replace(advantages=advantages)

    def gradient(self, position: int = 0) -> Gradient:
        """Returns the gradient of −log π A + baseline_cost · (R − V)² − entropy_cost · H(π).

        It is summed or averaged over valid steps.
        """
        # Compute the loss and its gradient.
        settings, gradient = self._settings, self._gradient
        unroll, log_prob, entropy, values, returns, advantages = self._rollout
        weight = unroll["valid"].float()
        # A row that is not a step has its own value as return, so that its error is 0.
        error = (returns - values).flatten()
        policy_loss = log_prob.flatten().dot((advantages * -weight).flatten())
        squares = error.dot(error)
        total_entropy = entropy.flatten().dot(weight.flatten())
        loss = policy_loss.add(squares, alpha=settings.baseline_cost)
        loss = loss.sub(total_entropy, alpha=settings.entropy_cost)
        gradient.zero_()
        loss.backward()

        # Average and clip, and collect the terms for the curves.
        steps = float(weight.sum())
        if self.averages:
            gradient.div_(max(1.0, steps))
        norm = clip_runs(gradient, self._clip, self._network.clip_sizes)
        *sums, gradient_norm = torch.stack((loss, policy_loss, squares, total_entropy, norm)).tolist()
        terms = dict(zip(TERMS, (figure / max(1.0, steps) for figure in sums), strict=True))
        terms["gradient_norm"] = gradient_norm
        if not math.isfinite(terms["loss"] + gradient_norm):
            raise diverged("the update from a rollout", terms, unroll, settings)
        return Gradient(gradient, steps if self.averages else 1.0, terms)
