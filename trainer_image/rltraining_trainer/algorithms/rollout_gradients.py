"""What samplers that compute gradients make of a rollout: the interface, and what A3C, A2C and PPO share behind it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from rltraining_trainer.algorithms.unrolls import Unroll

TERMS = ("loss", "policy_loss", "baseline_loss", "entropy")
"""Of the loss in all of them."""


class Gradient(NamedTuple):
    """One exchange of a sampler with the parameter holders."""

    values: Tensor
    """``[N]`` flat; the memory is that of the next gradient, too."""
    weight: float
    """What the mean over samplers weighs it by: the steps that it is a mean of, or 1 if it is a sum over its steps."""
    terms: dict[str, float]
    """Of the loss, means over its steps: loss, policy_loss, baseline_loss, entropy, and what the algorithm adds; and
    gradient_norm, of ``values`` before they were clipped."""


class RolloutGradients(Protocol):
    """Makes gradients of one rollout after the other: ``begin``, perhaps ``share``, then ``gradient``."""

    @property
    def exchanges(self) -> int:
        """Number of gradients of the current rollout."""
        ...

    def begin(self, unroll: Unroll, remaining: float = 1.0, exchanges: int | None = None) -> Tensor | None:
        """Begins the next rollout.

        Args:
            unroll: The rollout.
            remaining: Remaining fraction of the run, from 1 down to 0, for linear schedules.
            exchanges: Number of gradients that each sampler computes from its rollout. None: the
                number in the settings.

        Returns:
            Count, sum and sum of squares of the advantages, float64 ``[3]``, if they are normalised
            over the rollout. ``share`` must then follow.

        Raises:
            BadConfiguration: The settings do not fit the rollout.
        """
        ...

    def share(self, totals: Tensor) -> None:
        """Normalise by what ``begin`` returned, summed over all samplers whose gradients make one update, float64 [3]."""
        ...

    def gradient(self, position: int) -> Gradient:
        """One of the rollout's gradients, with the parameters as they are now; positions 0 .. ``exchanges`` − 1 in ascending
        order, some may be left out.

        Raises:
            Diverged: loss or gradient is NaN or infinite.
        """
        ...
