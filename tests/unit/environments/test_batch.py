"""Single environments stepped in turn or by threads: equal steps to gymnasium's, and returned errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from counting import CountingEnv
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from rltraining_api.environment import Environment
from rltraining_trainer.environments import Stepper, make_environments
from rltraining_trainer.environments.batch import EnvironmentBatch, InThreads, InTurn
from rltraining_trainer.environments.faults import FAILED, REMAKE
from rltraining_trainer.environments.packing import pack_environments
from rltraining_trainer.environments.slot import Slot, conform
from rltraining_trainer.errors import BadConfiguration, UserCodeError

IN_TURN_AND_IN_THREADS = pytest.mark.parametrize("slots", [InTurn, InThreads])


def batch(slots: Callable[..., Any], *makers: Callable[[], gym.Env]) -> EnvironmentBatch:
    return EnvironmentBatch(slots([Slot(make, "Mine") for make in makers]), len(makers))


@IN_TURN_AND_IN_THREADS
def test_steps_are_those_of_a_synchronous_vector_environment(slots: Callable[..., Any]) -> None:
    makers = [partial(CountingEnv, b) for b in range(3)]
    ours, theirs = Stepper(batch(slots, *makers), "Mine"), Stepper(SyncVectorEnv(makers), "Mine")

    assert ours.reset(3).tolist() == theirs.reset(3).tolist()
    for _ in range(40):
        one, other = (stepper.step(np.zeros(3, np.int64)) for stepper in (ours, theirs))
        for name in ("observation", "reward", "terminated", "truncated", "valid", "first", "over"):
            mine, yours = getattr(one, name), getattr(other, name)
            assert (mine.dtype, mine.tolist()) == (yours.dtype, yours.tolist()), name
    ours.close()


@pytest.mark.parametrize("id", ["MountainCarContinuous-v0", "CartPole-v1", "MiniGrid-Empty-5x5-v0"])
def test_threads_play_the_same_episodes_as_gymnasium(id: str) -> None:
    """Covers several spaces: a Box, Discrete, and a Dict with an image and a text."""
    spec = Environment(id=id, stepping="Threads", max_episode_steps=20)
    ours = make_environments(spec, 3)
    theirs = pack_environments(SyncVectorEnv([lambda: gym.make(id, max_episode_steps=20)] * 3), id)
    assert ours.single_observation_space == theirs.single_observation_space
    theirs.action_space.seed(1)

    seen, expected = [ours.reset(seed=5)[0]], [theirs.reset(seed=5)[0]]
    for _ in range(50):
        action = theirs.action_space.sample()
        seen += ours.step(action)[:4]
        expected += theirs.step(action)[:4]
    np.testing.assert_equal(seen, expected)
    ours.close()
    theirs.close()


class Moody(CountingEnv):
    """Raises if (number of instances, resets, steps since the reset) is in ``bad``."""

    made = 0

    def __init__(self, *bad: tuple[int, int, int]) -> None:
        super().__init__(0)
        type(self).made += 1
        self.bad, self.resets, self.steps, self.life, self.closed = set(bad), 0, 0, type(self).made, False

    def _suffer(self) -> None:
        if (self.life, self.resets, self.steps) in self.bad:
            raise OSError(f"broken in life {self.life}")

    def reset(self, **kwargs: Any) -> Any:
        self.resets, self.steps = self.resets + 1, 0
        self._suffer()
        return super().reset(**kwargs)

    def step(self, action: int) -> Any:
        self.steps += 1
        self._suffer()
        return super().step(action)

    def close(self) -> None:
        self.closed = True


@IN_TURN_AND_IN_THREADS
def test_a_failed_environment_is_reset_or_recreated_alone(
    slots: Callable[..., Any],
) -> None:
    class Mine(Moody):
        made = 0

    environments = batch(slots, partial(Mine, (1, 1, 2), (1, 2, 0)), partial(CountingEnv, 2))
    action, alone = np.zeros(2, np.int64), np.array([True, False])
    environments.reset(seed=4)
    environments.step(action)

    observation, *_, info = environments.step(action)
    (failed,) = info[FAILED].items()
    assert failed[0] == 0
    assert str(failed[1]).startswith("environment 'Mine': step raised OSError: broken in life 1")
    assert observation[1].tolist() == [2, 2], "the other one continues"

    _, info = environments.reset(options={"reset_mask": alone})
    assert list(info[FAILED]) == [0], "it cannot be reset"
    observation, info = environments.reset(options={"reset_mask": alone, REMAKE: alone})
    assert FAILED not in info
    assert Mine.made == 2
    assert observation.tolist() == [[0, 0], [2, 2]]
    observation, *_, info = environments.step(action)
    assert observation.tolist() == [[0, 1], [2, 3]]
    assert FAILED not in info
    environments.close()


@IN_TURN_AND_IN_THREADS
def test_one_that_cannot_be_made_closes_the_others(slots: Callable[..., Any]) -> None:
    good = Moody()

    def broken() -> gym.Env:
        raise UserCodeError("no licence")

    with pytest.raises(UserCodeError, match="no licence"):
        batch(slots, lambda: good, broken)
    assert good.closed


def test_observations_of_nested_spaces_are_copies_of_the_right_types_and_shapes() -> None:
    space = spaces.Dict(
        {"a": spaces.Box(0, 1, (2,)), "b": spaces.Tuple([spaces.Discrete(3), spaces.Text(5)])}
    )
    mine = np.zeros(2)
    found = conform(space, {"a": mine, "b": (1, "yes")})

    assert (found["a"].dtype, found["b"][0].dtype, found["b"][1]) == (np.float32, np.int64, "yes")
    mine[0] = 9
    assert found["a"][0] == 0
    with pytest.raises(ValueError, match=r"must return an observation of shape \(2,\)"):
        conform(space, {"a": np.zeros(3), "b": (1, "yes")})


def test_a_batch_that_is_one_computation_cannot_be_stepped_by_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered = gym.envs.registration.EnvSpec("Whole-v0", vector_entry_point="no:where")
    monkeypatch.setitem(gym.registry, "Whole-v0", registered)
    with pytest.raises(BadConfiguration, match=r"^spec\.environment\.stepping: Threads needs single environ"):
        make_environments(Environment(id="Whole-v0", stepping="Threads"), 2)
