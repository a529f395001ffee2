"""Derives the seeds of samplers and evaluations."""

from __future__ import annotations

from rltraining_trainer.environments.episode_seeds import seed_of


def sampler_seed(seed: int, index: int, version: int) -> int:
    """Returns a 31-bit seed for this sampler.

    ``version`` is the version of the sampler's first parameters. A restarted sampler gets another version and
    therefore does not repeat the same episodes.
    """
    return seed_of(seed, index, version)


_EVALUATIONS = 1 << 16
"""Takes the place of a sampler's index. No sampler has this index."""


def evaluation_seed(seed: int, environment_steps: int) -> int:
    """Returns a 31-bit seed for the evaluation at a step, which is the same if it is repeated."""
    return seed_of(seed, _EVALUATIONS, environment_steps)
