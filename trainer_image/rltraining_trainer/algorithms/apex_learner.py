"""The learner of Ape-X: updates a network with a target network from batches of a replay."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from rltraining_api.algorithms.apex import Apex
from rltraining_api.algorithms.optimizer import Optimizer as OptimizerSettings
from torch import Tensor

from rltraining_trainer.algorithms.divergence import describe_divergence
from rltraining_trainer.algorithms.optimizers import clip_by_norm, make_optimizer
from rltraining_trainer.algorithms.transitions import PRIORITY_EPSILON, Transitions
from rltraining_trainer.dataflow.flat import flatten_parameters, load_flat
from rltraining_trainer.dataflow.reduce import Reduce, alone
from rltraining_trainer.networks import PolicyNetwork


@dataclass(frozen=True)
class Part:
    """Consecutive parameters with a separate optimizer."""

    name: str
    """Name of its gradient norm among the terms of the loss."""
    size: int
    learning_rate: float
    period: int = 1
    """Updates of the network between two updates of this part."""


N = TypeVar("N", bound=PolicyNetwork)


class ApexLearner(ABC, Generic[N]):
    """Updates a network with a target network.

    Args:
        network: the network, which is moved to ``device``. Its parameters become views of the flat tensor ``parameters``.
        parts: the parts of the parameters, in their order.
    """

    algorithm: ClassVar[str]
    """The key in ``spec.algorithm``."""
    steps_sizes: ClassVar[str]
    """The fields to lower if training diverges."""

    def __init__(
        self,
        network: N,
        settings: Apex,
        optimizer: OptimizerSettings,
        parts: Sequence[Part],
        device: torch.device | str,
    ) -> None:
        self.network, self.device = network.to(device), torch.device(device)
        self._target: N = copy.deepcopy(network).requires_grad_(False)
        self._target_parameters = flatten_parameters(self._target).detach()
        self.parameters = flatten_parameters(network)
        self.updates = 0
        self.total_steps: int | None = None  # no setting of Ape-X has a schedule
        self._clip = settings.gradient_clip
        self._period, self._rate = settings.target_update_period, settings.target_update_rate
        self._norms: dict[str, Tensor] = {}  # norm of the newest gradient of each part
        sizes = [part.size for part in parts]
        assert self.parameters.grad is not None
        self._gradient = self.parameters.grad
        self._parts = tuple(
            zip(
                parts,
                self.parameters.detach().split(sizes),
                self._gradient.split(sizes),
                (make_optimizer(optimizer, size, self.device) for size in sizes),
                strict=True,
            )
        )

    def merge_moments(self, moments: Sequence[Tensor], reduce: Reduce = alone) -> None:
        """Merges moments of observations into the network's statistics, if it has any.

        All learners must call this method together.

        Args:
            moments: Each ``[U, 1 + 2·d]``.
            reduce: Sums over all learners.
        """
        statistics, target = self.network.normalizer, self._target.normalizer
        if statistics is None or target is None:
            return
        statistics.merge([row for part in moments for row in part], reduce)
        target.load_state_dict(statistics.state_dict())

    def step(
        self,
        batch: Transitions | None,
        weights: Tensor | None = None,
        normalizer: float = 1.0,
        reduce: Reduce = alone,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Makes one update, with the mean gradient over all learners' transitions.

        Args:
            batch: B transitions. None: this learner follows the updates of other learners.
            weights: ``[B]`` importance weights, which are divided by ``normalizer``. None: all are 1.
            reduce: sums gradients over learners. The gradient of each learner is a sum over its transitions.

        Returns:
            New priorities ``[B]`` on the CPU, |δ| + ``PRIORITY_EPSILON`` with the parameters before the update, and the terms
            of this learner's loss, each ``[]``, means over its batch.

        Raises:
            Diverged: loss or gradient is NaN or infinite. The parameters have not changed.
        """
        # Sum the gradients of all learners.
        self._gradient.zero_()
        priorities, terms, count = torch.zeros(0), dict[str, Tensor](), 0
        if batch is not None:
            batch = {name: column.to(self.device) for name, column in batch.items()}  # type: ignore[assignment,attr-defined]
            assert batch is not None
            count = len(batch["reward"])
            if weights is None:
                weights = torch.ones(count, device=self.device)
            else:
                weights = (weights / normalizer).to(self.device, torch.float32)
            errors, terms = self._backward(batch, weights)
            priorities = errors.abs().add_(PRIORITY_EPSILON).cpu()
        total = reduce(self._gradient, count)
        if total == 0.0:  # no learner has a batch
            return priorities, terms

        # Average, clip and apply them, and update the target network if it is due.
        self._gradient.div_(total)
        due = [each for each in self._parts if self._is_due(each[0].period)]
        for part, _, gradient, _ in due:
            self._norms[part.name] = clip_by_norm(gradient, self._clip)
        terms |= self._norms
        if not math.isfinite(sum(terms.values())):
            fields = f"spec.algorithm.{self.algorithm}.{self.steps_sizes}"
            raise describe_divergence(f"update {self.updates}", terms, batch, fields)
        for part, parameters, gradient, optimizer in due:
            optimizer.step(parameters, gradient, part.learning_rate)
        self.updates += 1
        if self.updates % self._period == 0:
            self._target_parameters.lerp_(self.parameters.detach(), self._rate)
        return priorities, terms

    def learning_rate(self, environment_steps: int) -> float:
        """Returns the learning rate of the first part, which is constant."""
        return self._parts[0][0].learning_rate

    def get_state(self) -> dict[str, Any]:
        """Returns the complete state. Noise of updates is of torch's generators, which checkpoints contain too."""
        return {
            "parameters": self.parameters.detach(),
            "target": self._target_parameters,
            "optimizers": [optimizer.get_state() for *_, optimizer in self._parts],
            "updates": self.updates,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state. Raises ValueError, RuntimeError or KeyError for another network or optimizer."""
        load_flat(self.parameters, state["parameters"])
        load_flat(self._target_parameters, state["target"])
        for (*_, optimizer), saved in zip(self._parts, state["optimizers"], strict=True):
            optimizer.set_state(saved)
        self.updates = state["updates"]

    def _is_due(self, period: int) -> bool:
        """Returns whether the update in progress is the last of ``period`` updates."""
        return (self.updates + 1) % period == 0

    @abstractmethod
    def _backward(self, batch: Transitions, weights: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Adds the gradient of the loss, summed over the batch, to the parameters' gradient.

        Returns:
            TD errors δ ``[B]`` and the terms of the loss, each ``[]``, means over the batch, all without gradients.
        """
