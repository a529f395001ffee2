"""A2C, A3C and PPO with all gradients computed at the learner from the rollouts of samplers.

PPO and A2C follow openai/baselines, A3C follows GA3C (Babaeizadeh et al. 2017, arXiv 1611.06256).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from rltraining_api.algorithms import A2c, A3c, Ppo
from torch import Tensor

from rltraining_trainer.algorithms.actor_critic import AdvantageActorCritic
from rltraining_trainer.algorithms.holder import ParameterHolder
from rltraining_trainer.algorithms.ppo import ProximalPolicyOptimization
from rltraining_trainer.algorithms.rollout_gradients import RolloutGradients
from rltraining_trainer.algorithms.unrolls import Unroll, concatenate, move
from rltraining_trainer.networks import ActorCritic, Distribution

KL_LIMIT = 1.5
"""The factor of ``targetKl`` above which updates from a rollout end, as in Stable-Baselines3."""


class RolloutLearner(ParameterHolder):
    """Holds the parameters and the optimizer, and makes all updates from a rollout of each sampler.

    torch's global generator shuffles PPO's minibatches. Its state is part of every checkpoint, so
    that a resumed run makes the same updates.
    """

    def __init__(
        self,
        network: ActorCritic,
        distribution: Distribution,
        settings: A3c | A2c | Ppo,
        total_steps: int | None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(network, settings, total_steps, device)
        self.network: ActorCritic = network.to(device)
        self.distribution = distribution
        self._device = torch.device(device)
        self._gradients: RolloutGradients
        if isinstance(settings, Ppo):
            self._gradients = ProximalPolicyOptimization(network, distribution, settings, self._flat)
        else:
            self._gradients = AdvantageActorCritic(network, distribution, settings, self._flat)

    def step(
        self, unrolls: Sequence[Unroll], leaving: Callable[[], bool] = lambda: False
    ) -> dict[str, float]:
        """Makes all updates from these unrolls of equal length. Returns the means of the loss
        terms.

        Args:
            leaving: Returns whether this process is asked to end. The update in progress is then
                the last from these unrolls, since all updates of PPO can take minutes on a CPU.

        Raises:
            Diverged: The loss or a gradient is not finite. That gradient was not applied.
        """
        # Compute advantages and returns of all samplers' steps, and normalise them together.
        unroll = move(concatenate(unrolls), self._device)
        statistics = self._gradients.begin(unroll, self.remaining)
        if statistics is not None:
            self._gradients.share(statistics)
        # Make one update per minibatch, until the policy is too far from the behaviour policy, or
        # this process is asked to end.
        steps = int(unroll["valid"].sum())
        terms: list[tuple[float, dict[str, float]]] = []
        for position in range(self._gradients.exchanges if steps else 0):
            gradient = self._gradients.gradient(position)
            self.apply(self._reduced(gradient.values, len(unrolls)), steps if position == 0 else 0)
            terms.append((gradient.weight, gradient.terms))
            if exceeds_target_kl(self.settings, gradient.terms) or leaving():
                break
        # Merge observation statistics after the updates, which use the samplers' statistics.
        self.merge_moments([unroll["moments"]])
        return _means(terms)

    def _reduced(self, gradient: Tensor, count: int) -> Tensor:
        """Scales the gradient of ``count`` unrolls as ``aggregate.reduction`` requires.

        The result equals the reduction of one gradient per unroll if all unrolls have equally many
        steps.
        """
        settings = self.settings
        averages = isinstance(settings, Ppo) or settings.loss_reduction == "Mean"
        if count == 1 or averages == (settings.aggregate.reduction == "Mean"):
            return gradient
        return gradient.mul_(count) if averages else gradient.div_(count)


def exceeds_target_kl(settings: A3c | A2c | Ppo, terms: dict[str, float]) -> bool:
    """Returns whether an update with these terms is the last from its rollout."""
    return (
        isinstance(settings, Ppo)
        and settings.target_kl is not None
        and terms["kl"] > KL_LIMIT * settings.target_kl
    )


def _means(terms: Sequence[tuple[float, dict[str, float]]]) -> dict[str, float]:
    """Averages the terms of minibatches, weighted by their steps."""
    total = sum(weight for weight, _ in terms)
    names = terms[0][1] if total else {}
    return {name: sum(weight * some[name] for weight, some in terms) / total for name in names}
