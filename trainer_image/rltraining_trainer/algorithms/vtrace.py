"""V-trace: off-policy corrected value targets and advantages (Espeholt et al. 2018, arXiv 1802.01561, section 4.1)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class VTrace(NamedTuple):
    """Value targets v_s and policy-gradient advantages ρ_s (r_s + γ_s v_{s+1} − V(x_s)), each ``[T, B]``."""

    targets: Tensor
    advantages: Tensor


@torch.no_grad()
def vtrace(
    log_rhos: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    *,
    rho_clip: float = 1.0,
    pg_rho_clip: float | None = 1.0,
    c_clip: float = 1.0,
    lambda_: float = 1.0,
    valid: Tensor | None = None,
) -> VTrace:
    """Returns the V-trace targets and advantages of T steps in B environments.

        δ_t = ρ_t (r_t + γ_t V(x_{t+1}) − V(x_t)),    ρ_t = min(rho_clip, π/μ),    c_t = λ min(c_clip, π/μ)
        v_t = V(x_t) + δ_t + γ_t c_t (v_{t+1} − V(x_{t+1})),    v_T = V(x_T)

    Args:
        log_rhos: ``[T, B]`` log π(a_t|x_t) − log μ(a_t|x_t).
        discounts: ``[T, B]`` γ_t: γ while the episode continues (also where it was truncated), 0 where it terminated.
        rewards: ``[T, B]`` r_t.
        values: ``[T, B]`` V(x_t).
        bootstrap_value: ``[B]`` V(x_T).
        pg_rho_clip: None: the advantages are not multiplied by ρ_s.
        valid: ``[T, B]`` bool, False for rows that are not steps, where an environment resets itself. The target of such a row
            is its value, so later rows do not affect earlier ones. None: all rows are steps.

    Raises:
        ValueError: shapes differ.
    """
    _check_shapes(log_rhos, discounts, rewards, values, bootstrap_value, valid)
    if valid is not None:  # fill instead of multiplying: 0 · NaN would be NaN
        log_rhos = log_rhos.masked_fill(~valid, -torch.inf)
        rewards = rewards.masked_fill(~valid, 0.0)
    ratios = log_rhos.exp()
    rhos = ratios.clamp(max=rho_clip)
    traces = discounts * ratios.clamp(max=c_clip) * lambda_
    next_values = torch.cat((values[1:], bootstrap_value.unsqueeze(0)))
    deltas = rhos * (rewards + discounts * next_values - values)

    correction = torch.zeros_like(bootstrap_value)  # v_{t+1} − V(x_{t+1})
    corrections = [correction]
    for delta, trace in zip(reversed(deltas.unbind()), reversed(traces.unbind()), strict=True):
        correction = torch.addcmul(delta, trace, correction)
        corrections.append(correction)
    corrections.reverse()
    stacked = torch.stack(corrections)
    targets = values + stacked[:-1]
    next_targets = next_values + stacked[1:]
    advantages = rewards + discounts * next_targets - values
    if pg_rho_clip is not None:
        advantages = ratios.clamp(max=pg_rho_clip) * advantages
    return VTrace(targets, advantages)


def _check_shapes(
    log_rhos: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap: Tensor,
    valid: Tensor | None,
) -> None:
    steps = {"log_rhos": log_rhos, "discounts": discounts, "rewards": rewards, "values": values}
    if valid is not None:
        steps["valid"] = valid
    if log_rhos.dim() != 2 or len({tensor.shape for tensor in steps.values()}) > 1:
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in steps.items())
        raise ValueError(f"vtrace: everything but bootstrap_value must have one shape [T, B], got {shapes}")
    if bootstrap.shape != log_rhos.shape[1:]:
        raise ValueError(
            f"vtrace: bootstrap_value must have the shape [B], {list(log_rhos.shape[1:])}, got {list(bootstrap.shape)}"
        )
