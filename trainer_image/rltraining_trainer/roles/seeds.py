"""Where a sampler's randomness begins."""

from __future__ import annotations

import numpy as np


def sampler_seed(seed: int, index: int, version: int) -> int:
    """A seed of this sampler's own, of 31 bits, as many simulators take no more. A sampler that is restarted meets another
    version, and so does not live the same episodes again."""
    return int(np.random.SeedSequence([seed, index, version]).generate_state(1)[0] >> 1)
