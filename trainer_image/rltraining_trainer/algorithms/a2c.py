"""A2C: synchronous advantage actor-critic (Mnih et al. 2016; openai/baselines a2c).

Its gradient is that of A3C. All samplers act with the same parameters, and each update uses the rollouts of all.
"""

from __future__ import annotations

from rltraining_trainer.algorithms.a3c import AdvantageActorCritic
from rltraining_trainer.algorithms.rollouts import learn, sample
from rltraining_trainer.world import World


def learner(world: World) -> None:
    """Makes one update from the rollouts of all samplers. Several learners average their gradients."""
    learn(world, AdvantageActorCritic)


def sampler(world: World) -> None:
    """Acts for ``rolloutLength`` steps, sends the rollout, and gets the updated parameters."""
    sample(world, AdvantageActorCritic)
