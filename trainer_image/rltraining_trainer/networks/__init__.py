"""Policies and values as torch modules: torso, optional LSTM, heads."""

from rltraining_trainer.networks.actor_critic import ActorCritic, State
from rltraining_trainer.networks.build import build_actor_critic
from rltraining_trainer.networks.distributions import Categorical, DiagonalGaussian, Distribution

__all__ = ["ActorCritic", "Categorical", "DiagonalGaussian", "Distribution", "State", "build_actor_critic"]
