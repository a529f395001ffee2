"""Derives the seeds of samplers and evaluations."""

from __future__ import annotations

import numpy as np


def sampler_seed(seed: int, index: int, version: int) -> int:
    """Returns a 31-bit seed for this sampler, since many simulators do not accept larger ones.

    ``version`` is that of the first parameters. A restarted sampler gets another version and
    therefore does not repeat the same episodes.
    """
    return int(np.random.SeedSequence([seed, index, version]).generate_state(1)[0] >> 1)


_EVALUATIONS = 1 << 16
"""Takes the place of a sampler's index. No sampler has this index."""


def evaluation_seed(seed: int, environment_steps: int) -> int:
    """Returns a 31-bit seed for the evaluation at a step, which is the same if it is repeated."""
    return int(np.random.SeedSequence([seed, _EVALUATIONS, environment_steps]).generate_state(1)[0] >> 1)
