"""SingleEnvironment returns the same as gymnasium's vector environment of one environment."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import numpy as np
import pytest
from counting import CountingEnv
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from rltraining_api.environment import Environment
from rltraining_trainer.environments import Stepper, make_environments
from rltraining_trainer.environments.single import SingleEnvironment


class InPlace(CountingEnv):
    """Returns the same array each time."""

    def __init__(self, first_episode: int) -> None:
        super().__init__(first_episode)
        self._array = np.zeros(2, np.float32)

    def _observation(self) -> np.ndarray:
        self._array[:] = super()._observation()
        return self._array


@pytest.mark.parametrize("make", [CountingEnv, InPlace])
def test_steps_are_those_of_a_synchronous_vector_environment(make: type[CountingEnv]) -> None:
    """Holds also when the caller keeps the arrays and the environment reuses its array."""
    ours = Stepper(SingleEnvironment(make(0)), "Counting")
    theirs = Stepper(SyncVectorEnv([lambda: make(0)]), "Counting")

    assert ours.reset(3).tolist() == theirs.reset(3).tolist()
    steps = [[stepper.step(np.zeros(1, np.int64)) for _ in range(40)] for stepper in (ours, theirs)]
    for one, other in zip(*steps, strict=True):
        for name in ("observation", "reward", "terminated", "truncated", "valid", "first"):
            mine, yours = getattr(one, name), getattr(other, name)
            assert (mine.dtype, mine.tolist()) == (yours.dtype, yours.tolist()), name
        assert one.final is None


def test_a_reset_ends_an_episode_that_was_over() -> None:
    environment = CountingEnv(0)
    environments = SingleEnvironment(environment)
    environments.reset(seed=5)
    while not (environments.step(np.zeros(1, np.int64))[2]).any():
        pass
    environments.reset()
    observation, *_ = environments.step(np.zeros(1, np.int64))

    assert observation.tolist() == [[1, 1]], "the first step of the next episode"
    assert environment.seeds == [5, None]


def test_its_attributes_are_those_of_a_synchronous_vector_environment() -> None:
    def make() -> gym.Env:
        return gym.make("CartPole-v1", render_mode="rgb_array")

    ours, theirs = SingleEnvironment(make()), SyncVectorEnv([make])
    for name in (
        "num_envs",
        "metadata",
        "render_mode",
        "single_observation_space",
        "single_action_space",
        "observation_space",
        "action_space",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    ours.close()
    theirs.close()


class Batch(VectorEnv):
    """A vector environment of CountingEnv's spaces, or of others."""

    def __init__(
        self, num_envs: int, observations: spaces.Space = CountingEnv.observation_space, batched: bool = False
    ) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space, self.single_action_space = observations, CountingEnv.action_space


def a_counting_env(observations: spaces.Space | None = None) -> CountingEnv:
    return CountingEnv(0)


@pytest.mark.parametrize(
    ("entry_point", "kwargs", "expected"),
    [
        (a_counting_env, {}, SingleEnvironment),
        (None, {}, Batch),
        (a_counting_env, {"observations": spaces.Box(0, 1, (84, 84))}, Batch),
        (a_counting_env, {"batched": True}, Batch),
    ],
    ids=["the same", "no entry point", "other spaces", "another keyword"],
)
def test_one_environment_is_a_batch_only_where_it_cannot_be_made_alone(
    entry_point: Callable[..., gym.Env] | None, kwargs: dict, expected: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered = gym.envs.registration.EnvSpec(
        "Both-v0", entry_point=entry_point, vector_entry_point=Batch, kwargs=kwargs
    )
    monkeypatch.setitem(gym.registry, "Both-v0", registered)

    environments = make_environments(Environment(id="Both-v0"), 1)

    assert type(environments.unwrapped) is expected
    assert type(make_environments(Environment(id="Both-v0"), 2).unwrapped) is Batch
