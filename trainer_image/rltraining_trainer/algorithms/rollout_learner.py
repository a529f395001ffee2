"""The interface by which A3C, A2C and PPO compute gradients of rollouts, and the learner that computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from rltraining_api.algorithms import A2c, A3c, Ppo
from rltraining_api.job import JobSpec
from torch import Tensor

from rltraining_trainer.algorithms.parameter_server import ParameterServer
from rltraining_trainer.algorithms.unrolls import Unroll, concatenate, move
from rltraining_trainer.dataflow.reduce import Reduce, alone
from rltraining_trainer.networks import ActorCritic, Distribution
from rltraining_trainer.world import Gradient

Settings = A3c | A2c | Ppo
TERMS = ("loss", "policy_loss", "baseline_loss", "entropy")
"""The terms of the loss that all these algorithms have."""


class RolloutGradients(Protocol):
    """Computes the gradients of one rollout after another: ``begin``, ``share`` if advantages are normalised, ``gradient``."""

    averages: bool
    """Whether a gradient is a mean over steps. Otherwise it is a sum."""

    def __init__(
        self, network: ActorCritic, distribution: Distribution, settings: Any, parameters: Tensor
    ) -> None:
        """``parameters``: ``flatten_parameters(network)`` ``[N]``. Gradients are computed in its ``grad``."""

    @staticmethod
    def exchanges_per_rollout(spec: JobSpec, settings: Any, samplers: int) -> int:
        """Returns the number of gradients of each rollout."""

    @staticmethod
    def ends_rollout(settings: Any, terms: Mapping[str, float]) -> bool:
        """Returns whether an update with these terms is the last from its rollout."""

    @property
    def exchanges(self) -> int:
        """Number of gradients of the current rollout."""

    def begin(self, unroll: Unroll, remaining: float = 1.0, exchanges: int | None = None) -> Tensor | None:
        """Begins the next rollout.

        Args:
            unroll: the rollout.
            remaining: remaining fraction of the run, from 1 down to 0, for linear schedules.
            exchanges: number of gradients that each sampler computes from its rollout. None: the
                number in the settings.

        Returns:
            Count, sum and sum of squares of the advantages, float64 ``[3]``, if they are normalised
            over the rollouts. ``share`` must then follow.

        Raises:
            BadConfiguration: the settings do not fit the rollout.
        """

    def share(self, totals: Tensor) -> None:
        """Normalises the advantages. ``totals``: float64 ``[3]``, sums of the results of ``begin`` over all samplers."""

    def gradient(self, position: int) -> Gradient:
        """Returns one of the rollout's gradients, with the current parameters.

        Positions are in ascending order, from 0 to ``exchanges`` − 1. Some may be left out.

        Raises:
            Diverged: loss or gradient is NaN or infinite.
        """


class RolloutLearner(ParameterServer):
    """Holds the parameters and the optimizer, and makes all updates from a rollout of each sampler.

    torch's global generator shuffles PPO's minibatches. Its state is part of every checkpoint, so
    that a resumed run makes the same updates.

    Args:
        kind: makes the gradients.
        exchanges: returns the number of updates for a number of samplers, namely the samplers of all learners, so that all
            learners make equally many updates. None: there is one learner, and its rollouts determine the number.
    """

    def __init__(
        self,
        network: ActorCritic,
        distribution: Distribution,
        settings: Settings,
        kind: type[RolloutGradients],
        total_steps: int | None,
        device: torch.device | str = "cpu",
        exchanges: Callable[[int], int] | None = None,
    ) -> None:
        super().__init__(network, settings, total_steps, device)
        self._exchanges = exchanges
        self._gradients = kind(network, distribution, settings, self._flat)

    def step(
        self,
        unrolls: Sequence[Unroll],
        reduce: Reduce = alone,
        *,
        leaving: Callable[[], bool] = lambda: False,
    ) -> dict[str, float]:
        """Makes all updates from these unrolls of equal length. Returns the means of the loss
        terms.

        Args:
            unrolls: none: only other learners have rollouts.
            reduce: sums over all learners.
            leaving: returns whether this process is asked to end. The update in progress is then
                the last of all learners from these unrolls, since all updates of PPO can take minutes on a CPU.

        Raises:
            Diverged: the loss or a gradient is not finite. That gradient was not applied.
            GroupChanged: a learner was lost.
        """
        # Compute advantages and returns of all samplers' steps, and normalise them together.
        settings, gradients, together = self.settings, self._gradients, self._exchanges is not None
        unroll = move(concatenate(unrolls), self._device) if unrolls else None
        exchanges = self._agree(len(unrolls), reduce)
        statistics = gradients.begin(unroll, self.remaining, exchanges) if unroll is not None else None
        if together and any_learner(statistics is not None, reduce, self._device):
            nothing = torch.zeros(3, dtype=torch.float64, device=self._device)
            reduce(statistics if statistics is not None else nothing, 0.0)
        if statistics is not None:
            gradients.share(statistics)

        # Make one update per minibatch, until the policy is too far from the behaviour policy, or
        # this process is asked to end.
        steps = int(unroll["valid"].sum()) if unroll is not None else 0
        terms: list[tuple[float, dict[str, float]]] = []
        updates = exchanges if exchanges is not None else gradients.exchanges if steps else 0
        for position in range(updates):
            found = gradients.gradient(position) if steps else None
            gradient = found.values if found is not None else torch.zeros_like(self.parameters)
            gradient = self._reduced(gradient, len(unrolls))
            new_steps = steps if position == 0 else 0
            if together:
                weight = found.weight if found is not None else 0.0
                weight = weight if gradients.averages else float(len(unrolls))
                new_steps = average(gradient, weight, new_steps, reduce, settings.aggregate.reduction)
                if position == 0 and not new_steps:  # no learner has a valid step
                    break
            self.apply(gradient, new_steps)
            if found is not None:
                terms.append((found.weight, found.terms))
            ends = found is not None and gradients.ends_rollout(settings, found.terms)
            if any_learner(ends or leaving(), reduce if together else alone, self._device):
                break

        # Merge observation statistics after the updates, which use the samplers' statistics.
        self.merge_moments([unroll["moments"]] if unroll is not None else [], reduce)
        return _means(terms)

    def _agree(self, rollouts: int, reduce: Reduce) -> int | None:
        """Returns the number of updates that all learners make. None: there is one learner.

        The learners add up their rollouts, because the number of samplers at their start may differ between them.
        """
        if self._exchanges is None:
            return None
        total = round(reduce(torch.zeros(1, device=self._device), float(rollouts)))
        return self._exchanges(total) if total else 0

    def _reduced(self, gradient: Tensor, count: int) -> Tensor:
        """Scales the gradient of ``count`` unrolls as ``aggregate.reduction`` requires.

        The result equals the reduction of one gradient per unroll if all unrolls have equally many
        steps.
        """
        averages = self._gradients.averages
        if count <= 1 or averages == (self.settings.aggregate.reduction == "Mean"):
            return gradient
        return gradient.mul_(count) if averages else gradient.div_(count)


def average(gradient: Tensor, weight: float, steps: int, reduce: Reduce, reduction: str) -> int:
    """Combines the learners' gradients ``[N]`` in place. Returns the sum of their environment steps.

    Args:
        weight: weight of this learner's gradient in the mean, 0 if it has none.
        reduction: Mean or Sum.
    """
    counts = torch.tensor([float(steps)], dtype=torch.float64, device=gradient.device)
    reduce(counts, 0.0)
    if reduction == "Mean":
        total = reduce(gradient.mul_(weight), weight)
        gradient.div_(total or 1.0)
    else:
        reduce(gradient, weight)
    return int(counts)


def any_learner(flag: bool, reduce: Reduce, device: torch.device) -> bool:
    """Returns whether a learner has this flag. ``device``: device of the sums over learners."""
    return reduce(torch.zeros(1, device=device), float(flag)) > 0.0


def _means(terms: Sequence[tuple[float, dict[str, float]]]) -> dict[str, float]:
    """Averages the terms of minibatches, weighted by their steps."""
    total = sum(weight for weight, _ in terms)
    names = terms[0][1] if total else {}
    return {name: sum(weight * some[name] for weight, some in terms) / total for name in names}
