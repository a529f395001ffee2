"""Observations and rewards that an environment must not return: one error message for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from batches import in_turn, single
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import PassiveEnvChecker
from rltraining_trainer.environments import Stepper
from rltraining_trainer.environments.batch import SerialEnvironments
from rltraining_trainer.environments.packing import pack_environments
from rltraining_trainer.errors import UserCodeError

VECTOR = spaces.Box(-1, 1, (2,), np.float32)
PARTS = spaces.Dict({"place": spaces.Discrete(3), "speed": VECTOR})
AT_REST = np.zeros(2, np.float32)


class Returns(gym.Env):
    """Returns ``observation`` and ``reward`` from ``step``, and ``first`` from ``reset``."""

    action_space = spaces.Discrete(2)

    def __init__(
        self,
        space: spaces.Space,
        first: Any,
        observation: Any,
        reward: Any = 0.0,
        flags: tuple[Any, Any] = (False, False),
        infos: tuple[Any, Any] = ({}, {}),
    ) -> None:
        self.observation_space = space
        self.first, self.observation, self.reward = first, observation, reward
        self.flags, self.infos = flags, infos

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        return self.first, self.infos[0]

    def step(self, action: int) -> tuple[Any, Any, Any, Any, Any]:
        return self.observation, self.reward, *self.flags, self.infos[1]


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


@BATCHES
@pytest.mark.parametrize(
    ("flag", "got"),
    [
        (None, "None"),
        ("False", "text"),
        (2, "2"),
        (np.zeros(2, bool), "an array of shape (2,)"),
        ([], "shape (0,)"),
    ],
    ids=str,
)
def test_a_flag_that_is_not_a_bool_is_reported(flag: Any, got: str, batch: Callable[..., VectorEnv]) -> None:
    for flags, name in (((flag, False), "terminated"), ((False, flag), "truncated")):
        mine = stepper(batch, VECTOR, AT_REST, AT_REST, 0.0, flags)
        assert error_of_step(mine) == f"environment 'Mine': step must return {name} as a bool, got {got}"


@BATCHES
@pytest.mark.parametrize("flag", [1, 1.0, np.True_, np.array(True), np.array([1]), torch.tensor(True)])
def test_a_flag_may_be_a_number_or_an_array_of_one_element(
    flag: Any, batch: Callable[..., VectorEnv]
) -> None:
    mine = stepper(batch, VECTOR, AT_REST, AT_REST, 0.0, (flag, np.False_))
    mine.reset(0)
    step = mine.step(np.zeros(1, np.int64))
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [False])


@BATCHES
@pytest.mark.parametrize("method", ["reset", "step"])
@pytest.mark.parametrize(("info", "got"), [(None, "None"), ([], "shape (0,)"), ("lost", "text")], ids=str)
def test_an_info_that_is_not_a_dict_is_reported(
    info: Any, got: str, method: str, batch: Callable[..., VectorEnv]
) -> None:
    infos = (info, {}) if method == "reset" else ({}, info)
    mine = stepper(batch, VECTOR, AT_REST, AT_REST, 0.0, (False, False), infos)
    rule = f"environment 'Mine': {method} must return info as a dict, got {got}"
    if method == "step":
        assert error_of_step(mine) == rule
        return
    with pytest.raises(UserCodeError) as caught:
        mine.reset(0)
    assert str(caught.value) == rule


@BATCHES
def test_an_integer_that_the_space_cannot_hold_is_reported(batch: Callable[..., VectorEnv]) -> None:
    """Numpy would wrap it: 300 in an image of bytes would become 44."""
    image = spaces.Box(0, 255, (2,), np.uint8)
    dark = np.zeros(2, np.uint16)
    mine = stepper(batch, image, dark, np.array([9, 300], np.uint16))
    assert error_of_step(mine) == (
        "environment 'Mine': step must return an observation of type uint8 to match its observation space, got 300 of "
        "type uint16"
    )
    mine = stepper(batch, image, dark, np.array([9, 200], np.uint16))
    mine.reset(0)
    assert mine.step(np.zeros(1, np.int64)).observation.tolist() == [[9, 200]]


class OldReset(Returns):
    def reset(self) -> Any:  # type: ignore[override]
        return AT_REST


class OldStep(Returns):
    def step(self) -> Any:  # type: ignore[override]
        return AT_REST


@BATCHES
def test_a_method_with_the_arguments_of_old_gym_is_reported(batch: Callable[..., VectorEnv]) -> None:
    make = {
        kind: Stepper(batch([lambda kind=kind: kind(VECTOR, AT_REST, AT_REST)]), "Mine")
        for kind in (OldReset, OldStep)
    }
    with pytest.raises(UserCodeError) as caught:
        make[OldReset].reset(0)
    assert str(caught.value) == (
        "environment 'Mine': reset must be defined as reset(self, *, seed=None, options=None), but raised TypeError: "
        "OldReset.reset() got an unexpected keyword argument 'seed'"
    )
    assert error_of_step(make[OldStep]) == (
        "environment 'Mine': step must be defined as step(self, action), but raised TypeError: OldStep.step() takes 1 "
        "positional argument but 2 were given"
    )


@pytest.mark.parametrize("batch", [SerialEnvironments, in_turn])
def test_instances_with_different_spaces_are_reported(batch: Callable[..., VectorEnv]) -> None:
    sizes = iter((2, 2, 3))

    def make() -> gym.Env:
        return Returns(spaces.Box(-1, 1, (next(sizes),), np.float32), AT_REST, AT_REST)

    with pytest.raises(UserCodeError) as caught:
        batch([make] * 3)
    assert str(caught.value) == (
        "spec.environment.id: all instances of the environment must have the same observation space, but one has "
        "Box(-1.0, 1.0, (2,), float32) and another has Box(-1.0, 1.0, (3,), float32)"
    )


@BATCHES
def test_a_mask_that_the_first_reset_lacks_is_reported(batch: Callable[..., VectorEnv]) -> None:
    """It would otherwise be ignored without a word."""
    infos = ({}, {"action_mask": [0, 1]})
    mine = stepper(batch, VECTOR, AT_REST, AT_REST, 0.0, (False, False), infos)
    assert error_of_step(mine) == (
        "environment 'Mine': step returned info[\"action_mask\"], but the first reset did not; return it "
        "with each observation, since every action needs a mask"
    )


@pytest.mark.parametrize("wrong", ["reward", "terminated", "truncated"])
def test_a_vector_environment_with_a_column_per_environment_is_reported(wrong: str) -> None:
    """Arithmetic with arrays of shape (2, 1) would make a table of each pair of environments."""

    class Columns(VectorEnv):
        num_envs = 2
        single_observation_space, single_action_space = VECTOR, spaces.Discrete(2)
        observation_space, action_space = batch_space(VECTOR, 2), spaces.MultiDiscrete([2, 2])

        def __init__(self) -> None:
            self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

        def reset(self, **kwargs: Any) -> Any:
            return np.zeros((2, 2), np.float32), {}

        def step(self, actions: Any) -> Any:
            figures = {"reward": np.zeros(2), "terminated": np.zeros(2, bool), "truncated": np.zeros(2, bool)}
            figures[wrong] = figures[wrong][:, None]
            return np.zeros((2, 2), np.float32), *figures.values(), {}

    mine = Stepper(Columns(), "Mine")
    mine.reset(0)
    with pytest.raises(UserCodeError) as caught:
        mine.step(np.zeros(2, np.int64))
    assert str(caught.value) == (
        f"environment 'Mine': step must return {wrong} of shape (2,), one for each environment, got (2, 1)"
    )


def test_observations_in_turn_are_copies() -> None:
    """The environment reuses the array that it returned before."""
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


class ReturnsValues(Returns):
    """Returns ``observation`` as everything that ``step`` returns."""

    def step(self, action: int) -> Any:
        return self.observation


FIVE = "(observation, reward, terminated, truncated, info)"


@BATCHES
@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ((AT_REST, 0.0, True), f"must return {FIVE}"),
        ((AT_REST, 0.0, True, {}), f"must return {FIVE}"),
        ((AT_REST, 0.0, True, False), f"must return {FIVE}"),
        ((AT_REST, 0.0, True, False, {}, 1), f"must return {FIVE}"),
        (None, f"must return {FIVE}"),
        ((AT_REST, 0.0, False, False, None), "must return info as a dict"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*old step API")
def test_what_gymnasiums_own_check_rejects_is_reported_like_our_checks(
    batch: Callable[..., VectorEnv], values: Any, rule: str
) -> None:
    """gymnasium.make adds this check. Its errors are no ValueErrors."""

    def make() -> gym.Env:
        return PassiveEnvChecker(ReturnsValues(VECTOR, AT_REST, values))

    mine = Stepper(pack_environments(batch([make]), "Mine"), "Mine")
    assert error_of_step(mine) == f"environment 'Mine': step {rule}"
