"""Observations outside their space: an index is an error, and a value outside a Box a warning."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rltraining_trainer.environments import Faults, Stepper
from rltraining_trainer.environments.batch import EnvironmentBatch, InTurn
from rltraining_trainer.environments.bounds import CHECKED_OBSERVATIONS
from rltraining_trainer.environments.packing import pack_environments
from rltraining_trainer.environments.slot import Slot
from rltraining_trainer.errors import UserCodeError

POSE = spaces.Dict({"pose": spaces.MultiDiscrete([3, 4]), "speed": spaces.Box(-1, 1, (2,), np.float32)})
AT_REST = np.zeros(2, np.float32)


class Returns(gym.Env):
    """Returns ``good``, and ``bad`` in step number ``when`` (0: from the reset)."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space, good: Any, bad: Any, when: int = 2) -> None:
        self.observation_space = space
        self.good, self.bad, self.when, self.steps = good, bad, when, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        return (self.bad if self.when == 0 else self.good), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self.steps += 1
        return (self.bad if self.steps == self.when else self.good), 1.0, False, False, {}


def stepper(mode: AutoresetMode, *cases: Any, name: str = "Mine") -> Stepper:
    environments = SyncVectorEnv([lambda: Returns(*cases)] * 2, autoreset_mode=mode)
    return Stepper(pack_environments(environments, name), name)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize(
    ("space", "good", "bad", "message"),
    [
        (spaces.Discrete(5), 4, 7, "an observation from 0 to 4 {} Discrete(5), got 7"),
        (spaces.Discrete(5), 0, -1, "an observation from 0 to 4 {} Discrete(5), got -1"),
        (spaces.Discrete(5, start=2), 6, 1, "an observation from 2 to 6 {} Discrete(5, start=2), got 1"),
        (spaces.Discrete(20_000), 19_999, 20_000, "an observation from 0 to 19999 {} Discrete(20000), got 20000"),
        (
            spaces.MultiDiscrete([3, 4]),
            np.array([2, 3]),
            np.array([2, 4]),
            "element 1 of an observation from 0 to 3 {} MultiDiscrete([3 4]), got 4",
        ),
        (
            spaces.MultiBinary((2, 2)),
            np.ones((2, 2), np.int8),
            np.array([[0, 1], [2, 0]], np.int8),
            "element [1, 0] of an observation from 0 to 1 {} MultiBinary((2, 2)), got 2",
        ),
        (
            POSE,
            {"pose": np.array([2, 3]), "speed": AT_REST},
            {"pose": np.array([3, 0]), "speed": AT_REST},
            "element 0 of the part 'pose' from 0 to 2 {} MultiDiscrete([3 4]), got 3",
        ),
    ],
)  # fmt: skip
def test_an_index_outside_of_its_space_is_refused(
    mode: AutoresetMode, space: spaces.Space, good: Any, bad: Any, message: str
) -> None:
    action, expected = np.zeros(2, np.int64), message.format("to match its observation space")

    mine = stepper(mode, space, good, bad)
    mine.reset(0)
    mine.step(action)
    with pytest.raises(UserCodeError) as caught:
        mine.step(action)
    assert str(caught.value) == f"environment 'Mine': step must return {expected}"

    with pytest.raises(UserCodeError) as caught:
        stepper(mode, space, good, bad, 0).reset(0)
    assert str(caught.value) == f"environment 'Mine': reset must return {expected}"


def test_an_environment_with_an_index_outside_of_its_space_is_reset_alone() -> None:
    slots = [Slot(lambda when=when: Returns(spaces.Discrete(5), 1, 7, when), "Mine") for when in (2, 0)]
    slots[1]._make = lambda: Returns(spaces.Discrete(5), 3, 3)
    mine = Stepper(EnvironmentBatch(InTurn(slots), 2), "Mine", Faults(resets=True, max_per_hour=1))
    mine.reset(0)
    mine.step(np.zeros(2, np.int64))
    step = mine.step(np.zeros(2, np.int64))
    assert step.discarded is not None
    assert step.discarded.tolist() == [True, False]
    assert step.observation.tolist() == [1, 3]


def outside(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "outside of its observation space" in line]


def test_values_outside_of_a_box_are_a_warning_once_in_a_process(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = (
        {"pose": np.array([0, 0]), "speed": AT_REST},
        {"pose": np.array([0, 0]), "speed": AT_REST - 1.5},
    )
    for _ in range(2):
        mine = stepper(AutoresetMode.NEXT_STEP, POSE, good, bad, name="Fast-v0")
        mine.reset(0)
        for _ in range(3):
            mine.step(np.zeros(2, np.int64))
    assert outside(caplog) == [
        "environment 'Fast-v0' returned an observation outside of its observation space: element 0 of the part "
        "'speed' is -1.5, and its bounds are -1 to 1; training continues, but correct the bounds: integers and "
        "images are scaled by them"
    ]


@pytest.mark.parametrize(
    ("space", "bad", "when"),
    [
        (spaces.Box(-1, 1, (2,), np.float32), np.full(2, 9.0), CHECKED_OBSERVATIONS),
        (spaces.Box(-0.1, 0.1, (2,), np.float64), np.full(2, 0.1), 0),
        (spaces.Box(0, 255, (2,), np.uint8), np.full(2, 255, np.uint8), 0),
        (spaces.Box(-np.inf, np.inf, (2,), np.float32), np.full(2, 1e30), 0),
    ],
    ids=["checked first observations only", "rounded like the observation", "all bytes", "no bounds"],
)
def test_no_warning_of_values(
    space: spaces.Space, bad: np.ndarray, when: int, caplog: pytest.LogCaptureFixture
) -> None:
    mine = stepper(AutoresetMode.NEXT_STEP, space, np.zeros(2, space.dtype), bad, when, name="Slow-v0")
    mine.reset(0)
    for _ in range(CHECKED_OBSERVATIONS):
        mine.step(np.zeros(2, np.int64))
    assert outside(caplog) == []
