"""One environment is no batch: it tells what gymnasium's vector environment of one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from counting import CountingEnv, synchronous
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from rltraining_api.environment import Environment
from rltraining_api.network import Lstm, Mlp, Network
from rltraining_trainer.algorithms.unrolls import Unroll, UnrollCollector
from rltraining_trainer.environments import Stepper, make_environments
from rltraining_trainer.environments.single import SingleEnvironment
from rltraining_trainer.errors import UserCodeError
from rltraining_trainer.networks import build_actor_critic


def unrolls(environments: VectorEnv, *, lstm: bool, number: int = 25) -> list[Unroll]:
    torch.manual_seed(1)
    spec = Network(mlp=Mlp(hidden_sizes=(8,)), lstm=Lstm(hidden_size=5) if lstm else None)
    collector = UnrollCollector(
        *build_actor_critic(spec, environments.single_observation_space, environments.single_action_space),
        Stepper(environments, "One"),
        length=20,
        discount=0.9,
        reward_clip=None,
        reward_scale=0.5,
        seed=7,
    )
    return [collector.collect() for _ in range(number)]


def assert_same(ours: Unroll, theirs: Unroll) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        for one, other in zip(ours[name], theirs[name], strict=True):  # type: ignore[literal-required]
            assert one.dtype == other.dtype, name
            assert torch.equal(one, other), name


@pytest.mark.parametrize("lstm", [False, True], ids=["mlp", "lstm"])
@pytest.mark.parametrize(("id", "limit"), [("CartPole-v1", 18), ("Pendulum-v1", 33)])
def test_unrolls_are_those_of_a_synchronous_vector_environment(id: str, limit: int, lstm: bool) -> None:
    environments = make_environments(Environment(id=id, max_episode_steps=limit), 1)
    assert isinstance(environments, SingleEnvironment)
    reference = gym.make_vec(id, 1, vectorization_mode="sync", max_episode_steps=limit)

    found = unrolls(environments, lstm=lstm)

    for ours, theirs in zip(found, unrolls(reference, lstm=lstm), strict=True):
        assert_same(ours, theirs)
    lengths = torch.cat([unroll["episode_length"] for unroll in found])
    assert (lengths == limit).any(), "some episodes are truncated"
    if id == "CartPole-v1":
        assert (lengths < limit).any(), "some end by themselves"


def test_steps_are_those_of_a_synchronous_vector_environment_whatever_the_ending() -> None:
    ours = Stepper(SingleEnvironment(CountingEnv(0)), "Counting")
    theirs = Stepper(synchronous(1, AutoresetMode.NEXT_STEP), "Counting")

    assert ours.reset(3).tolist() == theirs.reset(3).tolist()
    for _ in range(40):
        one, other = (stepper.step(np.zeros(1, np.int64)) for stepper in (ours, theirs))
        for name in ("observation", "reward", "terminated", "truncated", "valid", "first"):
            mine, yours = getattr(one, name), getattr(other, name)
            assert (mine.dtype, mine.tolist()) == (yours.dtype, yours.tolist()), name
        assert one.final is None


class InPlace(CountingEnv):
    """Returns the same array each time."""

    def __init__(self) -> None:
        super().__init__(0)
        self._array = np.zeros(2, np.float32)

    def _observation(self) -> np.ndarray:
        self._array[:] = super()._observation()
        return self._array


def test_what_a_step_told_is_the_caller_s_to_keep() -> None:
    kept = [], []
    for steps, environments in zip(
        kept, (SingleEnvironment(InPlace()), SyncVectorEnv([InPlace])), strict=True
    ):
        stepper = Stepper(environments, "Counting")
        stepper.reset(3)
        steps += [stepper.step(np.zeros(1, np.int64)) for _ in range(20)]
    for one, other in zip(*kept, strict=True):
        for name in ("observation", "reward", "terminated", "truncated", "valid", "first"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist(), name


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


def test_it_says_of_itself_what_a_synchronous_vector_environment_does() -> None:
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


class Shapeless(CountingEnv):
    """Forgets the shape of its observations after ``right`` of them."""

    def __init__(self, right: int) -> None:
        super().__init__(0)
        self.right = right

    def _observation(self) -> Any:
        self.right -= 1
        return super()._observation() if self.right >= 0 else np.float32(0.0)


@pytest.mark.parametrize("right", [0, 1], ids=["reset", "step"])
def test_an_observation_of_another_shape_is_told(right: int, request: pytest.FixtureRequest) -> None:
    stepper = Stepper(SingleEnvironment(Shapeless(right)), "Mine")
    where = request.node.callspec.id

    def reset_and_step() -> None:
        stepper.reset(0)
        stepper.step(np.zeros(1, np.int64))

    with pytest.raises(
        UserCodeError,
        match=rf"^environment 'Mine': {where} must return an observation of shape \(2,\), as its observation space says, "
        r"not one of shape \(\)$",
    ):
        reset_and_step()


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
