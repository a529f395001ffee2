"""Importance weights of what was drawn by priority."""

from __future__ import annotations

from torch import Tensor


def importance_weights(
    probabilities: Tensor, total: int, exponent: float, largest: float | None = None
) -> Tensor:
    """w_i = (N·P(i))^-β, divided by `largest` if it is given (Schaul et al. 2016, arXiv 1511.05952, section 3.4).

    Args:
        probabilities: P, float64 [B]: of each item in one draw from *all* shards.
        total: N, the number of items in all shards.
        exponent: β; 1 undoes the draw's bias wholly, 0 not at all.
        largest: the one weight that all are divided by, so that they only scale updates down; of the batch, or of
            the whole memory, but the same for all that is learned from in one update.

    Returns:
        float32 [B].

    Raises:
        ValueError: a probability is not positive, or `total` or `largest` is not.
    """
    if total < 1 or (largest is not None and not largest > 0):
        raise ValueError(f"weights need items and a positive largest weight, not {total} and {largest}")
    if not bool((probabilities > 0).all()):
        raise ValueError("an item whose probability is not positive cannot have been drawn")
    weights = (total * probabilities).pow(-exponent)
    return (weights if largest is None else weights / largest).float()
