"""The built-in algorithms, by their keys in ``spec.algorithm``.

A module defines ``learner(world)`` and ``sampler(world)``, and ``replay(world)`` if pods of their own can keep its replay.
"""

from __future__ import annotations

from typing import NamedTuple

from rltraining_trainer.networks import build_actor_critic, build_deterministic, build_q_network
from rltraining_trainer.networks.build import NetworkBuilder


class BuiltIn(NamedTuple):
    """A built-in algorithm."""

    module: str
    """Name of its module, which is imported when it runs."""
    build_network: NetworkBuilder = build_actor_critic
    """Builds its policy network, for policies that are loaded."""


_ALGORITHMS = "rltraining_trainer.algorithms"

BUILT_IN = {
    "a3c": BuiltIn(f"{_ALGORITHMS}.a3c"),
    "a2c": BuiltIn(f"{_ALGORITHMS}.a2c"),
    "ppo": BuiltIn(f"{_ALGORITHMS}.ppo"),
    "impala": BuiltIn(f"{_ALGORITHMS}.impala"),
    "dqnApex": BuiltIn(f"{_ALGORITHMS}.dqn", build_q_network),
    "ddpgApex": BuiltIn(f"{_ALGORITHMS}.ddpg", build_deterministic),
}
