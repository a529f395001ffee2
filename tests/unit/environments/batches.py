"""Batches of environments that a stepper gets in place of gymnasium's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gymnasium as gym
from gymnasium.vector import VectorEnv
from rltraining_trainer.environments.batch import EnvironmentBatch, InTurn
from rltraining_trainer.environments.single import SingleEnvironment
from rltraining_trainer.environments.slot import Slot


def single(makers: Sequence[Callable[[], gym.Env]]) -> VectorEnv:
    """Returns a batch of the first environment only."""
    return SingleEnvironment(makers[0]())


def in_turn(makers: Sequence[Callable[[], gym.Env]]) -> VectorEnv:
    """Returns a batch of environments that step in turn."""
    return EnvironmentBatch(InTurn([Slot(make, "Mine") for make in makers]), len(makers))
