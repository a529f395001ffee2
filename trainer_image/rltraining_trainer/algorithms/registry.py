"""The built-in algorithms, by their keys in ``spec.algorithm``.

A module defines ``learner(world)`` and ``sampler(world)``, and ``replay(world)`` if separate pods
can keep its replay. It defines ``build_network`` if no other algorithm uses its network.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any, NamedTuple

from gymnasium import Space
from rltraining_api.environment import Normalize
from rltraining_api.network import Network

from rltraining_trainer.networks import (
    Actions,
    PolicyNetwork,
    build_actor_critic,
    build_deterministic,
    build_q_network,
)
from rltraining_trainer.networks.build import NetworkBuilder


class BuiltIn(NamedTuple):
    """A built-in algorithm."""

    module: str
    """Name of its module, which is imported when it runs."""
    build_network: NetworkBuilder = build_actor_critic
    """Builds its policy network, for policies that are loaded."""


_ALGORITHMS = "rltraining_trainer.algorithms"


def with_network(module: str) -> BuiltIn:
    """Returns an algorithm with ``build_network`` in its module.

    The module is imported when it runs, or when a policy is loaded.
    """

    def build_network(*args: Any, **settings: Any) -> tuple[Any, Any]:
        return importlib.import_module(module).build_network(*args, **settings)

    return BuiltIn(module, build_network)


BUILT_IN = {
    "a3c": BuiltIn(f"{_ALGORITHMS}.a3c"),
    "a2c": BuiltIn(f"{_ALGORITHMS}.a2c"),
    "ppo": BuiltIn(f"{_ALGORITHMS}.ppo"),
    "impala": BuiltIn(f"{_ALGORITHMS}.impala"),
    "dqnApex": BuiltIn(f"{_ALGORITHMS}.dqn", build_q_network),
    "ddpgApex": BuiltIn(f"{_ALGORITHMS}.ddpg", build_deterministic),
    "r2d2": with_network(f"{_ALGORITHMS}.r2d2"),
    "sac": with_network(f"{_ALGORITHMS}.sac"),
    "td3": with_network(f"{_ALGORITHMS}.td3"),
}


def build_policy_network(
    algorithm: str,
    network: Network,
    observation_space: Space,
    action_space: Space,
    *,
    normalize: Normalize | None,
    dueling: bool,
    quantiles: int,
    noisy: bool,
) -> tuple[PolicyNetwork, Actions]:
    """Builds the network of an algorithm, and the conversion of its outputs to actions.

    Users' algorithms have the network of the actor-critic algorithms.

    Raises:
        BadConfiguration: The algorithm or the network does not support the spaces.
        UserCodeError: ``network.entryPoint`` cannot be imported, or raised.
    """
    known = BUILT_IN.get(algorithm)
    build = known.build_network if known is not None else build_actor_critic
    if build is build_q_network:
        build = partial(build_q_network, dueling=dueling, quantiles=quantiles, noisy=noisy)
    return build(network, observation_space, action_space, normalize=normalize)
