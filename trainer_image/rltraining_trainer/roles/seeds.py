"""Where the randomness of samplers and of evaluations begins."""

from __future__ import annotations

import numpy as np


def sampler_seed(seed: int, index: int, version: int) -> int:
    """A seed of this sampler's own, of 31 bits, as many simulators take no more. A sampler that is restarted meets another
    version, and so does not live the same episodes again."""
    return int(np.random.SeedSequence([seed, index, version]).generate_state(1)[0] >> 1)


_EVALUATIONS = 1 << 16
"""Stands where a sampler's index does, and is no sampler's."""


def evaluation_seed(seed: int, environment_steps: int) -> int:
    """A seed of 31 bits for the evaluation of the policy at a step: the same when the evaluation is repeated."""
    return int(np.random.SeedSequence([seed, _EVALUATIONS, environment_steps]).generate_state(1)[0] >> 1)
