"""Importance weights of what was drawn by priority."""

from __future__ import annotations

from torch import Tensor


def importance_weights(probabilities: Tensor, total: int, exponent: float) -> Tensor:
    """w_i = (N·P(i))^-β (Schaul et al. 2016, arXiv 1511.05952, section 3.4).

    They are divided later, by one largest weight that is the same for all that is learned from in one update: that
    of the batch, or of the whole memory.

    Args:
        probabilities: P, float64 [B]: of each item in one draw from *all* shards.
        total: N, the number of items in all shards.
        exponent: β; 1 undoes the draw's bias wholly, 0 not at all.

    Returns:
        float32 [B].

    Raises:
        ValueError: a probability is not positive, or `total` is not.
    """
    if total < 1:
        raise ValueError(f"weights need items, not {total}")
    if not bool((probabilities > 0).all()):
        raise ValueError("an item whose probability is not positive cannot have been drawn")
    return (total * probabilities).pow(-exponent).float()
