"""Targets and losses of temporal-difference learning from transitions."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def double_q_target(returns: Tensor, discounts: Tensor, values: Tensor, selector: Tensor) -> Tensor:
    """Returns the targets ``[B]`` of double Q-learning (van Hasselt et al. 2016, arXiv 1509.06461, equation 4) over n steps.

        y = R + γ^k Q'(s', argmax_a Q(s', a))

    Plain Q-learning (Mnih et al. 2015) is the case in which ``selector`` is ``values``.

    Args:
        returns: ``[B]`` R, the discounted rewards of k steps.
        discounts: ``[B]`` γ^k, or 0 if the episode terminated.
        values: ``[B, A]`` Q'(s', ·) of the target network.
        selector: ``[B, A]`` Q(s', ·) of the network that selects the action.
    """
    chosen = values.gather(1, selector.argmax(1, keepdim=True)).squeeze(1)
    return torch.addcmul(returns, discounts, chosen)


@torch.no_grad()
def squared_loss(errors: Tensor) -> tuple[Tensor, Tensor]:
    """Returns ½ δ² of TD errors δ = y − Q ``[B]``, and its derivative with respect to δ, which is δ, each ``[B]``."""
    return 0.5 * errors.square(), errors


@torch.no_grad()
def huber_loss(errors: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the Huber loss of TD errors δ = y − Q ``[B]``, and its derivative c with respect to δ, each ``[B]``.

        ½ δ² where |δ| ≤ 1, |δ| − ½ elsewhere    =    c (δ − ½ c),    c = min(1, max(−1, δ))

    Mnih et al. 2015 (Nature 518) describe this loss as clipping the error.
    """
    clipped = errors.clamp(-1.0, 1.0)
    return clipped * (errors - 0.5 * clipped), clipped


@torch.no_grad()
def quantile_huber_loss(target: Tensor, quantiles: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the quantile Huber loss of quantiles θ ``[B, K]`` (Dabney et al. 2018, arXiv 1710.10044, equation 10 with κ = 1).

        Σ_i mean_j |τ_i − 1{δ_ij < 0}| huber(δ_ij),    δ_ij = y_j − θ_i,    τ_i = (i + ½) / K

    Args:
        target: ``[B, K]`` y, samples of the target distribution.
        quantiles: ``[B, K]`` θ.

    Returns:
        The loss ``[B]``, and its derivative with respect to θ, ``[B, K]``.
    """
    count = quantiles.shape[1]
    fractions = (torch.arange(count, device=quantiles.device) + 0.5) / count
    errors = target.unsqueeze(1) - quantiles.unsqueeze(2)
    loss, slope = huber_loss(errors)
    weights = (fractions.unsqueeze(1) - (errors < 0).to(errors.dtype)).abs()
    return (weights * loss).mean(2).sum(1), -(weights * slope).mean(2)


def rescale(values: Tensor, epsilon: float) -> Tensor:
    """Returns h(x) = sign(x) (√(|x| + 1) − 1) + ε x (Pohlen et al. 2018, arXiv 1805.11593, proposition A.2)."""
    return values.sign() * ((values.abs() + 1.0).sqrt() - 1.0) + epsilon * values


def unscale(values: Tensor, epsilon: float) -> Tensor:
    """Inverts ``rescale``: returns h⁻¹(x) = sign(x) (((√(1 + 4 ε (|x| + 1 + ε)) − 1) / (2 ε))² − 1)."""
    # In float32 the published quotient is 0 / 0 for a small ε. This equivalent form has no difference that cancels.
    offset = values.abs() + 1.0 + epsilon
    root = 2.0 * offset / ((1.0 + 4.0 * epsilon * offset).sqrt() + 1.0)
    return values.sign() * (root.square() - 1.0)
