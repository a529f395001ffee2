"""Returns and advantages of the policy that acted: n-step returns (Mnih et al. 2016, arXiv 1602.01783, section 4) and
generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438)."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def generalized_advantages(
    rewards: Tensor,
    discounts: Tensor,
    values: Tensor,
    lambda_: float,
    valid: Tensor | None = None,
) -> Tensor:
    """Returns advantages ``[T, B]`` of T steps in B environments (equations 11 and 16).

        δ_t = r_t + γ_t V(x_{t+1}) − V(x_t),    A_t = δ_t + γ_t λ A_{t+1},    A_T = 0

    A_t + V(x_t) is the λ-return, the target of V(x_t).

    Args:
        rewards: ``[T, B]`` r_t.
        discounts: ``[T, B]`` γ_t: γ while the episode continues (also where it was truncated), 0 where it terminated.
        values: ``[T+1, B]`` V(x_t).
        lambda_: λ, from 0 for one-step errors to 1 for returns to the end of the episode or of the data.
        valid: ``[T, B]`` bool, False for rows that are not steps, where an environment resets itself. The advantage of such a
            row is 0, so later rows do not affect earlier ones. None: all rows are steps.

    Raises:
        ValueError: shapes differ.
    """
    _check_shapes("generalized_advantages", rewards, discounts, values, valid)
    deltas = torch.addcmul(rewards, discounts, values[1:]).sub_(values[:-1])
    traces = discounts * lambda_
    if valid is not None:  # fill instead of multiplying: 0 · NaN would be NaN
        invalid = ~valid
        deltas.masked_fill_(invalid, 0.0)
        traces.masked_fill_(invalid, 0.0)
    rows, decays = deltas.unbind(), traces.unbind()
    for t in reversed(range(len(rows) - 1)):
        rows[t].addcmul_(decays[t], rows[t + 1])  # A_t = δ_t + γ_t λ A_{t+1}
    return deltas


@torch.no_grad()
def n_step_returns(
    rewards: Tensor, discounts: Tensor, values: Tensor, n: int, valid: Tensor | None = None
) -> Tensor:
    """Returns the n-step returns ``[T, B]`` of T steps in B environments, with fewer than n steps at the end of the data.

        R_t = r_t + γ_t r_{t+1} + … + (γ_t ⋯ γ_{t+k−1}) V(x_{t+k}),    k = min(n, T − t)

    Args:
        rewards, discounts, values: as in ``generalized_advantages``.
        n: at least 1.
        valid: ``[T, B]`` bool, False for rows that are not steps. Their return is their value. None: all rows are steps.

    Raises:
        ValueError: shapes differ, or n is not positive.
    """
    _check_shapes("n_step_returns", rewards, discounts, values, valid)
    if n < 1:
        raise ValueError(f"n_step_returns: n must be positive, got {n}")
    if valid is not None:
        invalid = ~valid
        rewards = torch.where(invalid, values[:-1], rewards)
        discounts = discounts.masked_fill(invalid, 0.0)
    returns = values[:-1]
    for _ in range(min(n, len(rewards))):  # from k-step to (k + 1)-step returns
        returns = torch.addcmul(rewards, discounts, torch.cat((returns[1:], values[-1:])))
    return returns


def moments(values: Tensor, valid: Tensor) -> Tensor:
    """Returns count, sum and sum of squares of the ``values`` where ``valid``, float64 ``[3]``, for ``normalize``.

    The moments of several parts of the data add up to the moments of all data.
    """
    known = values.masked_fill(~valid, 0.0).double().flatten()
    return torch.stack((valid.sum().double(), known.sum(), known.dot(known)))


def normalize(values: Tensor, totals: Tensor) -> Tensor:
    """Normalises values with the ``moments`` ``totals`` to mean 0 and variance 1.

    A single value becomes 0.

    The variance is unbiased, as in Stable-Baselines3 and CleanRL.
    """
    count, total, squares = totals.tolist()
    mean = total / max(1.0, count)
    if count < 2:
        return values - mean
    variance = max(0.0, (squares - count * mean * mean) / (count - 1.0))
    return (values - mean) / (variance**0.5 + 1e-8)


def _check_shapes(
    function: str, rewards: Tensor, discounts: Tensor, values: Tensor, valid: Tensor | None
) -> None:
    steps = {"rewards": rewards, "discounts": discounts}
    if valid is not None:
        steps["valid"] = valid
    if rewards.dim() != 2 or len({tensor.shape for tensor in steps.values()}) > 1:
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in steps.items())
        raise ValueError(f"{function}: everything but values must have one shape [T, B], got {shapes}")
    expected = [len(rewards) + 1, rewards.shape[1]]
    if list(values.shape) != expected:
        raise ValueError(
            f"{function}: values must have the shape [T+1, B], {expected}, got {list(values.shape)}"
        )
