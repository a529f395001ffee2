"""Policy and value networks as torch modules."""

from rltraining_trainer.networks.actions import Actions, DeterministicActions, GreedyActions
from rltraining_trainer.networks.actor_critic import ActorCritic
from rltraining_trainer.networks.build import build_actor_critic, build_deterministic, build_q_network
from rltraining_trainer.networks.deterministic import DeterministicActorCritic
from rltraining_trainer.networks.distributions import (
    Categorical,
    DiagonalGaussian,
    Distribution,
    SquashedGaussian,
)
from rltraining_trainer.networks.policy_network import (
    PolicyNetwork,
    State,
    actor_parameter_count,
    parameter_count,
)
from rltraining_trainer.networks.q_network import QNetwork

__all__ = [
    "Actions",
    "ActorCritic",
    "Categorical",
    "DeterministicActions",
    "DeterministicActorCritic",
    "DiagonalGaussian",
    "Distribution",
    "GreedyActions",
    "PolicyNetwork",
    "QNetwork",
    "SquashedGaussian",
    "State",
    "actor_parameter_count",
    "build_actor_critic",
    "build_deterministic",
    "build_q_network",
    "parameter_count",
]
