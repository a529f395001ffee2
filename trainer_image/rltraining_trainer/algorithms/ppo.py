"""PPO: proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347), also distributed (DPPO, Heess et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from rltraining_api.algorithms import Ppo, sequences_of
from rltraining_api.fields import Schedule
from rltraining_api.job import JobSpec
from torch import Tensor

from rltraining_trainer.algorithms.clipped import clipped_objective
from rltraining_trainer.algorithms.divergence import diverged
from rltraining_trainer.algorithms.minibatches import Minibatch, Minibatches
from rltraining_trainer.algorithms.returns import generalized_advantages, moments, normalize
from rltraining_trainer.algorithms.rollout_learner import TERMS
from rltraining_trainer.algorithms.rollouts import learn, sample
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.networks import ActorCritic, Distribution
from rltraining_trainer.world import Gradient, World

KL_LIMIT = 1.5
"""The factor of ``targetKl`` above which updates from a rollout end, as in Stable-Baselines3."""
_TERMS = (*TERMS, "kl", "clip_fraction", "explained_variance", "gradient_norm")


def learner(world: World) -> None:
    """Makes ``epochs`` passes over the rollouts of all samplers. Several learners average their gradients."""
    learn(world, ProximalPolicyOptimization)


def sampler(world: World) -> None:
    """Acts for ``rolloutLength`` steps, sends the rollout, and gets the updated parameters."""
    sample(world, ProximalPolicyOptimization)


class ProximalPolicyOptimization:
    """Computes gradients for ``epochs`` passes over each rollout, with M minibatches each.

    Args:
        parameters: ``[N]``, ``flatten_parameters(network)``. Gradients are computed in its ``grad``.
    """

    def __init__(
        self,
        network: ActorCritic,
        distribution: Distribution,
        settings: Ppo,
        parameters: Tensor,
    ) -> None:
        assert parameters.grad is not None
        self.averages = True
        self._network, self._distribution, self._settings = network, distribution, settings
        self._gradient = parameters.grad
        self._count = settings.minibatches or 1
        self._unroll: Unroll
        self._minibatches: Minibatches
        self._clip_range, self._entropy_cost = settings.clip_range, settings.entropy_cost
        self._explained_variance = torch.zeros(())

    @staticmethod
    def exchanges_per_rollout(spec: JobSpec, settings: Ppo, samplers: int) -> int:
        """Returns ``epochs`` · M. With ``minibatchSize`` and an LSTM, M is at most the number of sequences
        of a sampler, since each minibatch needs at least one."""
        length, environments = settings.rollout_length, spec.environment.num_envs
        minibatches = settings.minibatches_of(length * environments * samplers)
        if settings.minibatches is None and spec.network.lstm is not None:
            minibatches = min(minibatches, sequences_of(length, environments, settings.sequence_length))
        return settings.epochs * minibatches

    @staticmethod
    def ends_rollout(settings: Ppo, terms: Mapping[str, float]) -> bool:
        return settings.target_kl is not None and terms["kl"] > KL_LIMIT * settings.target_kl

    def begin(self, unroll: Unroll, remaining: float = 1.0, exchanges: int | None = None) -> Tensor | None:
        """Computes the advantages and returns used in all epochs, and the scheduled coefficients.

        See ``RolloutGradients.begin``.

        Raises:
            BadConfiguration: With an LSTM, there are fewer sequences than minibatches.
        """
        settings, valid = self._settings, unroll["valid"]
        self._count = exchanges // settings.epochs if exchanges else self._measured(valid)
        self._minibatches = Minibatches(self._network, unroll, self._count, settings.sequence_length)

        # Compute values, advantages and returns before the first update.
        with torch.no_grad():
            _, values = self._network.unroll(unroll["observation"], unroll["state"], unroll["first"])
        discounts = settings.discount * ~unroll["ended"]
        advantages = generalized_advantages(unroll["reward"], discounts, values, settings.gae_lambda, valid)
        returns = advantages + values[:-1]
        self._minibatches.figures = torch.stack((unroll["log_prob"], advantages, returns, values[:-1]))
        self._explained_variance = _explained_variance(values[:-1][valid], returns[valid])

        # Apply the schedules.
        self._clip_range = settings.clip_range * _left(settings.clip_range_schedule, remaining)
        self._entropy_cost = settings.entropy_cost * _left(settings.entropy_schedule, remaining)
        self._unroll = unroll
        together = settings.advantage_normalization and settings.advantage_normalization_per == "Rollout"
        return moments(advantages, valid) if together else None

    @property
    def exchanges(self) -> int:
        """Number of gradients of the current rollout."""
        return self._settings.epochs * self._count

    def share(self, totals: Tensor) -> None:
        figures = self._minibatches.figures
        figures[1] = normalize(figures[1], totals)

    def gradient(self, position: int) -> Gradient:
        """Returns the gradient of the clipped objective for one minibatch (equations 7 and 9).

        The objective is −min(ρ A, clip(ρ, 1 ± ε) A) + baseline_cost · (R − V)² − entropy_cost ·
        H(π), averaged over the steps. With ``valueClip`` c, (R − V)² is the maximum of itself and
        the error of V clipped to c around its value before the first update.

        The terms also contain kl, an estimate of KL(acted, current) = E[(ρ − 1) − log ρ] (Schulman
        2020, "Approximating KL divergence"), clip_fraction, the fraction of steps with |ρ − 1| > ε,
        and explained_variance, 1 − Var(R − V) / Var(R) of the rollout before its first update.

        Args:
            position: Index of the minibatch within all epochs of the rollout.
        """
        settings, gradient = self._settings, self._gradient
        gradient.zero_()
        part = self._minibatches.get(position)
        if part is None:
            return Gradient(gradient, 0.0, dict.fromkeys(_TERMS, 0.0))

        # Compute the loss and its gradient.
        log_prob, entropy = self._distribution.log_prob_and_entropy(part.policies, part.action)
        log_ratio = log_prob - part.log_prob
        ratio = log_ratio.exp()
        policy_loss = -clipped_objective(ratio, self._advantages(part), self._clip_range).mean()
        squares = self._squares(part).mean()
        mean_entropy = entropy.mean()
        loss = policy_loss.add(squares, alpha=settings.baseline_cost)
        if self._entropy_cost:
            loss = loss.sub(mean_entropy, alpha=self._entropy_cost)
        loss.backward()

        # Collect the terms for the curves.
        far = ratio.detach() - 1.0
        kl = (far - log_ratio.detach()).mean()
        clip_fraction = (far.abs() > self._clip_range).float().mean()
        figures = (loss, policy_loss, squares, mean_entropy, kl, clip_fraction, self._explained_variance)
        norm = torch.linalg.vector_norm(gradient)
        terms = dict(zip(_TERMS, torch.stack((*figures, norm)).tolist(), strict=True))
        if not math.isfinite(terms["loss"] + terms["gradient_norm"]):
            raise diverged(f"update {position} from a rollout", terms, self._unroll, settings)
        return Gradient(gradient, float(len(part.action)), terms)

    def _advantages(self, part: Minibatch) -> Tensor:
        """Returns ``[S]``, normalised over the minibatch if the settings require it and S > 1."""
        settings, advantages = self._settings, part.advantages
        apart = settings.advantage_normalization and settings.advantage_normalization_per == "Minibatch"
        if not apart or len(advantages) < 2:
            return advantages
        deviation, mean = torch.std_mean(advantages)
        return (advantages - mean) / (deviation + 1e-8)

    def _squares(self, part: Minibatch) -> Tensor:
        """Returns squared errors of the values ``[S]``."""
        squares, limit = (part.returns - part.values).square(), self._settings.value_clip
        if limit is None:
            return squares
        near = part.old_values + (part.values - part.old_values).clamp(-limit, limit)
        return torch.maximum(squares, (part.returns - near).square())

    def _measured(self, valid: Tensor) -> int:
        """Returns the rollout's number of minibatches, at most one per sequence with an LSTM."""
        minibatches = self._settings.minibatches_of(int(valid.sum()))
        if self._network.lstm is None or self._settings.minibatches is not None:
            return minibatches
        steps, environments = valid.shape
        return min(minibatches, sequences_of(steps, environments, self._settings.sequence_length))


def _left(schedule: Schedule, remaining: float) -> float:
    return remaining if schedule == "Linear" else 1.0


def _explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """Returns 1 − Var(R − V) / Var(R), 1 for perfect values and 0 if all returns are equal."""
    if len(returns) == 0 or (variance := returns.var(correction=0)) == 0:
        return torch.zeros((), device=returns.device)
    return 1.0 - (returns - values).var(correction=0) / variance
