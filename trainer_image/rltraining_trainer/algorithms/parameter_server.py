"""A parameter server: a slice of the parameters with its optimizer state, updated with gradients.

See Dean et al. 2012, "Large scale distributed deep networks", section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from rltraining_api.algorithms import A2c, A3c, Ppo
from torch import Tensor

from rltraining_trainer.algorithms.divergence import diverged
from rltraining_trainer.algorithms.optimizers import make_optimizer
from rltraining_trainer.algorithms.schedules import scheduled
from rltraining_trainer.dataflow.flat import flatten_parameters, load_flat, slice_of
from rltraining_trainer.dataflow.reduce import Reduce, alone
from rltraining_trainer.networks import ActorCritic


class ParameterServer:
    """Holds slice ``index`` of ``count`` of a network's N parameters, from index·N // count to (index + 1)·N // count.

    Args:
        network: the network, which is moved to ``device``. Its parameters become views of one flat vector. Parameters of other
            slices have the values of the last ``collect``.
        total_steps: environment steps at which linear schedules reach 0.
    """

    def __init__(
        self,
        network: ActorCritic,
        settings: A3c | A2c | Ppo,
        total_steps: int | None,
        device: torch.device | str = "cpu",
        index: int = 0,
        count: int = 1,
    ) -> None:
        self.network, self.settings = network.to(device), settings
        self.updates = 0
        self.environment_steps = 0
        """Environment steps of the rollouts of all updates."""
        self.total_steps = total_steps
        """Environment steps at which linear schedules reach 0. Follows changes of ``spec.stop``."""
        self._scheduled_steps = 0
        """Environment steps before the present rollouts. The schedules use this number in all updates from these rollouts."""
        self._count, self._device = count, torch.device(device)
        self._flat = flatten_parameters(network)
        size = self._flat.numel()
        self._slice = slice(index * size // count, (index + 1) * size // count)
        self.parameters = slice_of(self._flat, self._slice)
        """``[n]``, a view of the flat vector."""
        self._runs = _within(self._slice, network.clip_sizes)
        self._optimizer = make_optimizer(settings.optimizer, self.parameters.numel(), self._device)
        # In mode Async each sampler clips its gradients.
        self._clip = settings.gradient_clip if settings.aggregate.mode == "Sync" else None
        self._collected: dict[str, Any] = {}
        """The complete state, if this is one of several slices."""
        if count > 1:
            fresh = make_optimizer(settings.optimizer, size, self._device)
            self._collected = self._state(self._flat.detach().clone(), fresh.get_state())

    def apply(self, gradient: Tensor, steps: int) -> None:
        """Makes one update with ``gradient`` ``[n]``, which changes in place, from ``steps`` environment steps.

        Raises:
            Diverged: the gradient is NaN or infinite. Nothing has changed.
        """
        # Clip each separately clipped segment. A slice is never clipped: samplers do that in mode Async.
        runs = [gradient[run] for run in self._runs]
        found = torch.stack([torch.linalg.vector_norm(run) for run in runs]).tolist()
        norm = math.hypot(*found)
        if not math.isfinite(norm):
            raise diverged(f"update {self.updates}", {"gradient_norm": norm}, None, self.settings)
        for run, run_norm in zip(runs, found, strict=True):
            if self._clip is not None and run_norm > self._clip:
                run.mul_(self._clip / (run_norm + 1e-6))

        # Update. Only the first gradient of a rollout carries its environment steps.
        if steps:
            self._scheduled_steps = self.environment_steps
            self.environment_steps += steps
        self._optimizer.step(self.parameters, gradient, self.learning_rate(self._scheduled_steps))
        self.updates += 1

    def merge_moments(self, moments: Sequence[Tensor], reduce: Reduce = alone) -> None:
        """Merges moments of observations and returns into the network's statistics, if it has any.

        Args:
            moments: each ``[U, 1 + 2·d]``. With slices, every learner receives all of them.
            reduce: sums over learners that each have a part of the moments.
        """
        if self.network.normalizer is not None:
            self.network.normalizer.merge([row for part in moments for row in part], reduce)

    def learning_rate(self, environment_steps: int) -> float:
        """Returns the learning rate after N environment steps."""
        settings = self.settings
        return scheduled(
            settings.learning_rate, settings.learning_rate_schedule, environment_steps, self.total_steps
        )

    @property
    def remaining(self) -> float:
        """Remaining fraction of the run, from 1 down to 0. 1 without ``stop.environmentSteps``."""
        return scheduled(1.0, "Linear", self.environment_steps, self.total_steps)

    def collect(self, reduce: Reduce) -> None:
        """Gathers all slices in each learner, for ``get_state`` and ``network``.

        All learners must call this together. ``reduce`` sums over them.
        """

        def whole(part: Any) -> Any:
            if not (isinstance(part, Tensor) and part.numel()):
                return part
            full = torch.zeros(self._flat.numel(), dtype=part.dtype, device=part.device)
            full[self._slice] = part
            reduce(full, 0.0)
            return full

        optimizer = self._optimizer.get_state()
        parameters = whole(self.parameters)
        self._collected = self._state(parameters, {name: whole(part) for name, part in optimizer.items()})
        load_flat(self._flat, parameters)

    def get_state(self) -> dict[str, Any]:
        """Returns the complete state, for any number of slices. Updates are not random.

        With several slices it is the state of the last ``collect`` or ``set_state``.
        """
        if self._count == 1:
            return self._state(self._flat.detach(), self._optimizer.get_state())
        return self._collected

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state. Raises ValueError, RuntimeError or KeyError for another network or optimizer."""
        load_flat(self._flat, state["parameters"])
        size = self._flat.numel()
        self._optimizer.set_state(
            {
                name: part[self._slice] if isinstance(part, Tensor) and part.numel() == size else part
                for name, part in state["optimizer"].items()
            }
        )
        self.updates = state["updates"]
        self.environment_steps = self._scheduled_steps = state["environment_steps"]
        if self._count > 1:
            self._collected = state

    def _state(self, parameters: Tensor, optimizer: dict[str, Any]) -> dict[str, Any]:
        return {
            "parameters": parameters,
            "optimizer": optimizer,
            "updates": self.updates,
            "environment_steps": self.environment_steps,
        }


def _within(part: slice, sizes: Sequence[int]) -> list[slice]:
    """Intersects consecutive segments of these sizes with ``part``.

    Returns one slice per segment, relative to the start of ``part``, empty without an intersection.
    """
    ends = [0, *accumulate(sizes)]
    bounds = [min(max(end, part.start), part.stop) - part.start for end in ends]
    return [slice(*pair) for pair in pairwise(bounds)]
