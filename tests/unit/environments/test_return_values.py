"""Observations and rewards that are not what an environment should return: one sentence for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from rltraining_trainer.environments import Stepper
from rltraining_trainer.environments.batch import EnvironmentBatch, InTurn, SerialEnvironments
from rltraining_trainer.environments.packing import pack_environments
from rltraining_trainer.environments.single import SingleEnvironment
from rltraining_trainer.environments.slot import Slot
from rltraining_trainer.errors import UserCodeError

VECTOR = spaces.Box(-1, 1, (2,), np.float32)
PARTS = spaces.Dict({"place": spaces.Discrete(3), "speed": VECTOR})
AT_REST = np.zeros(2, np.float32)


class Returns(gym.Env):
    """Returns ``observation`` and ``reward`` from ``step``, and ``first`` from ``reset``."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space, first: Any, observation: Any, reward: Any = 0.0) -> None:
        self.observation_space = space
        self.first, self.observation, self.reward = first, observation, reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        return self.first, {}

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict]:
        return self.observation, self.reward, False, False, {}


def single(makers: list[Callable[[], gym.Env]]) -> VectorEnv:
    return SingleEnvironment(makers[0]())


def in_turn(makers: list[Callable[[], gym.Env]]) -> VectorEnv:
    return EnvironmentBatch(InTurn([Slot(make, "Mine") for make in makers]), len(makers))


BATCHES = pytest.mark.parametrize("batch", [SerialEnvironments, single, in_turn])


def stepper(batch: Callable[..., VectorEnv], *returns: Any) -> Stepper:
    return Stepper(pack_environments(batch([lambda: Returns(*returns)]), "Mine"), "Mine")


def error_of_step(mine: Stepper) -> str:
    mine.reset(0)
    with pytest.raises(UserCodeError) as caught:
        mine.step(np.zeros(1, np.int64))
    return str(caught.value)


@BATCHES
def test_an_observation_that_is_not_numbers_is_reported(batch: Callable[..., VectorEnv]) -> None:
    rule = "must return an observation of type float32 to match its observation space, got text"
    assert error_of_step(stepper(batch, VECTOR, AT_REST, ["a", "b"])) == f"environment 'Mine': step {rule}"
    with pytest.raises(UserCodeError) as caught:
        stepper(batch, VECTOR, ["a", "b"], AT_REST).reset(0)
    assert str(caught.value) == f"environment 'Mine': reset {rule}"


@BATCHES
@pytest.mark.parametrize(
    ("observation", "rule"),
    [
        (
            {"place": 1, "speed": ["a", "b"]},
            "an observation in which the part 'speed' has type float32 {}, got text",
        ),
        (
            {"place": 1, "speed": np.zeros(3)},
            "an observation in which the part 'speed' has shape (2,) {}, got shape (3,)",
        ),
        (
            {"place": None, "speed": AT_REST},
            "an observation in which the part 'place' has shape () {}, got None",
        ),
        ({"place": 1}, "observations with the part 'speed' {}"),
        (None, "observations with the part 'place' {}"),
    ],
)
def test_a_wrong_part_of_an_observation_is_reported(
    observation: Any, rule: str, batch: Callable[..., VectorEnv]
) -> None:
    mine = stepper(batch, PARTS, {"place": 1, "speed": AT_REST}, observation)
    assert (
        error_of_step(mine)
        == f"environment 'Mine': step must return {rule.format('to match its observation space')}"
    )


@BATCHES
@pytest.mark.parametrize(
    ("reward", "got"),
    [(None, "None"), (np.zeros(2), "an array of shape (2,)"), ("much", "text"), ({}, "dict")],
    ids=str,
)
def test_a_reward_that_is_not_a_number_is_reported(
    reward: Any, got: str, batch: Callable[..., VectorEnv]
) -> None:
    mine = stepper(batch, VECTOR, AT_REST, AT_REST, reward)
    assert error_of_step(mine) == f"environment 'Mine': step must return a reward that is a float, got {got}"


@BATCHES
@pytest.mark.parametrize(
    ("reward", "expected"),
    [(3, 3.0), (True, 1.0), (np.array(2.5), 2.5), (np.array([1.5]), 1.5), (np.array([[2]]), 2.0)],
)
def test_a_reward_may_be_an_array_of_one_element(
    reward: Any, expected: float, batch: Callable[..., VectorEnv]
) -> None:
    mine = stepper(batch, VECTOR, AT_REST, AT_REST, reward)
    mine.reset(0)
    assert mine.step(np.zeros(1, np.int64)).reward.tolist() == [expected]


def test_observations_in_turn_are_copies() -> None:
    """The environment writes into the array that it returned before."""
    array = np.zeros(2, np.float32)
    mine = stepper(SerialEnvironments, VECTOR, array, array)
    first = mine.reset(0)
    array += 1
    second = mine.step(np.zeros(1, np.int64)).observation
    array += 1
    mine.step(np.zeros(1, np.int64))
    assert (first.tolist(), second.tolist()) == ([[0, 0]], [[1, 1]])


def test_an_error_in_the_first_reset_of_a_packed_vector_environment_is_reported() -> None:
    class Closed(VectorEnv):
        num_envs = 2
        single_observation_space, single_action_space = PARTS, spaces.Discrete(2)
        observation_space, action_space = batch_space(PARTS, 2), spaces.MultiDiscrete([2, 2])

        def __init__(self) -> None:
            self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

        def reset(self, **kwargs: Any) -> Any:
            raise OSError("no map")

    with pytest.raises(UserCodeError, match=r"^environment 'Mine': reset raised OSError: no map"):
        Stepper(pack_environments(Closed(), "Mine"), "Mine").reset(0)
