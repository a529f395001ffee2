"""A user's vector environment with a mistake: one sentence for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from rltraining_api.environment import Environment
from rltraining_trainer.environments import Stepper, make_environments
from rltraining_trainer.errors import UserCodeError

PIXELS = spaces.Box(0, 255, (2,), np.uint8)


class Batch(VectorEnv):
    """Ends an episode in each second step. ``changes`` replaces attributes, or values of ``step``."""

    single_observation_space, single_action_space = PIXELS, spaces.Discrete(2)

    def __init__(self, num_envs: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP, **changes: Any) -> None:
        self.num_envs = changes.get("num_envs", num_envs)
        self.metadata = {"autoreset_mode": mode}
        self.observation_space = batch_space(PIXELS, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.changes, self.steps = changes, 0

    def reset(self, **_: Any) -> tuple[Any, Any]:
        self.steps = 0
        return np.zeros((self.num_envs, 2), np.uint8), {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        self.steps += 1
        ends = np.full(self.num_envs, self.steps % 2 == 0)
        returned = {
            "observation": np.zeros((self.num_envs, 2), np.uint8),
            "reward": np.ones(self.num_envs),
            "terminated": ends,
            "truncated": np.zeros(self.num_envs, bool),
            "info": {},
        }
        return tuple({name: self.changes.get(name, value) for name, value in returned.items()}.values())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stepper]:
    def make(kind: type[VectorEnv] = Batch, **changes: Any) -> Stepper:
        spec = gym.envs.registration.EnvSpec("Mine-v0", vector_entry_point=kind, kwargs=changes)
        monkeypatch.setitem(gym.registry, "Mine-v0", spec)
        return Stepper(make_environments(Environment(id="Mine-v0"), 3), "Mine-v0")

    return make


def test_one_without_a_mistake_is_stepped(made: Callable[..., Stepper]) -> None:
    stepper = made()
    stepper.reset(0)
    steps = [stepper.step(np.zeros(3, np.int64)) for _ in range(6)]
    assert [bool(step.over.all()) for step in steps] == [False, True] * 3
    assert [bool(step.valid.all()) for step in steps] == [True, True, False, True, False, True]


SAME_STEP = AutoresetMode.SAME_STEP
STUCK = np.ones(3, bool)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (
            {"terminated": STUCK},
            "must reset an environment in the step after its episode has ended, since its autoreset mode is NEXT_STEP, "
            "but this step returned terminated or truncated again",
        ),
        (
            {"mode": SAME_STEP},
            'must return the last observations of episodes in info["final_obs"], since its autoreset mode is SAME_STEP',
        ),
        (
            {"mode": SAME_STEP, "info": {"final_obs": np.full(3, None)}},
            'must return the last observations of episodes in info["final_obs"], since its autoreset mode is SAME_STEP',
        ),
        ({"info": None}, "must return infos as a dict of arrays, got NoneType"),
        ({"info": [{}] * 3}, "must return infos as a dict of arrays, got list"),
        (
            {"info": {"action_mask": np.ones((2, 2))}},
            'must return info["action_mask"] with 3 rows, one for each environment, got 2',
        ),
        (
            {"terminated": np.array([np.nan, 0, 0])},
            "must return terminated as bools, got an array of float64 with other values",
        ),
        ({"reward": [None] * 3}, "must return rewards that are floats, got an array of object"),
        (
            {"observation": np.full((3, 2), 0.5)},
            "must return observations of type uint8 to match its observation space Box(0, 255, (2,), uint8), got float64",
        ),
        (
            {"observation": np.full((3, 2), 300, np.uint16)},
            "must return an observation of type uint8 to match its observation space, got 300 of type uint16",
        ),
    ],
    ids=range(10),
)
def test_a_return_value_that_cannot_be_learnt_from_is_reported(
    changes: dict[str, Any], rule: str, made: Callable[..., Stepper]
) -> None:
    stepper = made(**changes)
    stepper.reset(0)
    with pytest.raises(UserCodeError) as caught:  # noqa: PT012 - in one of the first steps
        for _ in range(3):
            stepper.step(np.zeros(3, np.int64))
    assert str(caught.value) == f"environment 'Mine-v0': step {rule}"


def test_another_number_of_environments_is_reported(made: Callable[..., Stepper]) -> None:
    with pytest.raises(UserCodeError) as caught:
        made(num_envs=4)
    assert str(caught.value) == (
        "environment 'Mine-v0': the vector environment was made with num_envs=3, but has 4; make num_envs environments"
    )


def test_a_missing_attribute_is_named(made: Callable[..., Stepper]) -> None:
    class Bare(VectorEnv):
        metadata = {"autoreset_mode": SAME_STEP}  # noqa: RUF012

        def __init__(self, num_envs: int) -> None:
            self.num_envs = num_envs

    with pytest.raises(UserCodeError) as caught:
        made(Bare)
    assert str(caught.value) == (
        "environment 'Mine-v0': the vector environment has no single_observation_space; set it in the constructor"
    )
