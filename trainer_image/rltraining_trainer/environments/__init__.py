"""Gymnasium environments, stepped as one vector environment with any autoreset mode."""

from rltraining_trainer.environments.episodes import EpisodeTracker
from rltraining_trainer.environments.faults import Faults
from rltraining_trainer.environments.make import close_environments, make_environments, make_spaces
from rltraining_trainer.environments.stepper import Step, Stepper, StepperStats

__all__ = [
    "EpisodeTracker",
    "Faults",
    "Step",
    "Stepper",
    "StepperStats",
    "close_environments",
    "make_environments",
    "make_spaces",
]
