"""n-step returns (Sutton and Barto 2018, section 7.1; Ape-X: arXiv 1803.00933, section 4.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class NStep(NamedTuple):
    """The n-step returns from each of R steps in B environments. Each field is ``[R, B]``."""

    returns: np.ndarray
    """R_t, float32."""
    discounts: np.ndarray
    """Factor of the value after the last of the k steps: γ^k, or 0 if the episode terminated there. float32."""
    lengths: np.ndarray
    """k, the number of steps, from 1 to n, int64. x_{t+k} is the observation after the last of these steps."""


def n_step_transitions(
    rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, n: int, discount: float
) -> NStep:
    """Returns the n-step returns from each of R steps, with fewer than n steps at the end of an episode or of the data.

        R_t = Σ_{i<k} γ^i r_{t+i},    k = min(n, steps to the end of the episode, R − t)

    The target is R_t + discounts_t · V(x_{t+k}). A truncated episode is bootstrapped with the value of its last observation,
    and a terminated episode is not.

    Args:
        rewards: ``[R, B]`` float32 r_t, finite also in rows that are not steps.
        terminated, truncated: ``[R, B]`` bool, how the step ended its episode. If both are True, it terminated.
        n: at least 1.
        discount: γ.

    Raises:
        ValueError: shapes differ, or n is not positive.
    """
    if not (rewards.ndim == 2 and rewards.shape == terminated.shape == truncated.shape and n > 0):
        raise ValueError(
            f"n_step_transitions: rewards {rewards.shape}, terminated {terminated.shape} and truncated {truncated.shape} "
            f"must have one shape [R, B], and n must be positive, got {n}"
        )
    rows = len(rewards)
    returns = np.zeros(rewards.shape, np.float32)
    lengths = np.zeros(rewards.shape, np.int64)
    active = np.ones(rewards.shape, bool)
    for i in range(min(n, rows)):
        # Row t belongs to step t in views that begin at 0, and to step t + i in views that begin at i.
        continues, count = active[: rows - i], lengths[: rows - i]
        returns[: rows - i] += np.float32(discount**i) * (rewards[i:] * continues)
        count += continues
        continues &= ~(terminated[i:] | truncated[i:])
    powers = np.power(discount, np.arange(n + 1), dtype=np.float64).astype(np.float32)
    last = np.minimum(np.arange(rows)[:, None] + lengths - 1, max(rows - 1, 0))
    discounts = powers[lengths] * ~np.take_along_axis(terminated, last, 0)
    return NStep(returns, discounts, lengths)
