"""The clipped objective of PPO (Schulman et al. 2017, arXiv 1707.06347), which IMPALA can use too."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_objective(ratio: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """Returns min(ρ A, clip(ρ, 1 ± ε) A) for each step (equation 7). The learner maximises its mean.

    Args:
        ratio: ρ = π(a|x) / μ(a|x) of the learnt policy π and the policy μ that acted.
        advantages: A, of the shape of ``ratio``.
        clip_range: ε.
    """
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    return torch.minimum(ratio * advantages, clipped * advantages)
