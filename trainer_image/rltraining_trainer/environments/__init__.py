"""Gymnasium environments, many stepped together, whatever way they reset themselves."""

from rltraining_trainer.environments.episodes import EpisodeTracker
from rltraining_trainer.environments.make import make_environments
from rltraining_trainer.environments.stepper import Step, Stepper

__all__ = ["EpisodeTracker", "Step", "Stepper", "make_environments"]
