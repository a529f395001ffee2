"""Gymnasium environments, many stepped together, whatever way they reset themselves."""

from rltraining_trainer.environments.episodes import EpisodeTracker
from rltraining_trainer.environments.make import make_environments
from rltraining_trainer.environments.stepper import Step, Stepped, Stepper

__all__ = ["EpisodeTracker", "Step", "Stepped", "Stepper", "make_environments"]
