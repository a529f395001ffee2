"""Blocks of environments that move between samplers."""

from __future__ import annotations

import random
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from rltraining_api.algorithms import DdpgApex, Ppo
from rltraining_api.environment import Environment, Normalize
from rltraining_api.network import Lstm, Mlp, Network
from rltraining_trainer.algorithms.block_collector import (
    BlockCollector,
    TransitionBlockCollector,
    UnrollBlockCollector,
)
from rltraining_trainer.algorithms.ddpg import DdpgActor
from rltraining_trainer.dataflow.block_state import BlockState, following
from rltraining_trainer.environments import Stepper, make_spaces
from rltraining_trainer.environments.episode_seeds import block_options, seed_of
from rltraining_trainer.environments.seeded_batch import make_seeded_environments
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks import build_actor_critic, build_deterministic
from torch import Tensor

B, T = 3, 20
SETTINGS = Ppo(rollout_length=T)


class Clock(gym.Env):
    """An environment with one source of randomness that is not the seed."""

    observation_space = spaces.Box(-10, 10, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, source: str) -> None:
        self.source, self.episodes = source, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t, self.episodes = 0, self.episodes + 1
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        reward = random.random() if self.source == "reward" else 0.0
        return self._observation, reward, self.t == 9, False, {}

    @property
    def _observation(self) -> Any:
        value = {"episodes": self.episodes, "step": random.random() * (self.t > 4)}.get(self.source, 0)
        return torch.full((1,), float(value)).numpy()


class Walks(VectorEnv):
    """Random walks that end after 5 to 8 steps."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "seeded_resets": True}  # noqa: RUF012 # as in gymnasium
    single_observation_space = spaces.Box(-100, 100, (1,))
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.place, self.left = np.zeros(num_envs), np.zeros(num_envs, int)
        self.random = [np.random.default_rng()] * num_envs

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        mask = np.ones(self.num_envs, bool) if options is None else options["reset_mask"]
        for b in np.flatnonzero(mask):
            self.random[b] = np.random.default_rng(None if seed is None else seed[b])
            self.place[b], self.left[b] = self.random[b].normal(), self.random[b].integers(5, 9)
        return self._observation, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.place += actions + [random.normal() for random in self.random]
        self.left -= 1
        return self._observation, self.place, self.left <= 0, np.zeros(self.num_envs, bool), {}

    @property
    def _observation(self) -> Any:
        return self.place[:, None].astype(np.float32)


gym.register("BlockOfWalks-v0", vector_entry_point=f"{__name__}:Walks")
gym.register("Clock-v0", entry_point=f"{__name__}:Clock")


class Masked(Walks):
    """In each step one action is valid."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(**kwargs)
        return observation, {"action_mask": self._masks}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        running = self.left > 0
        if (actions != self.left % 2)[running].any():
            raise ValueError(f"invalid: {actions}")
        *result, _ = super().step(actions)
        return (*result, {"action_mask": self._masks})

    @property
    def _masks(self) -> Any:
        return np.eye(2, dtype=np.int8)[self.left % 2]


gym.register("BlockOfMasked-v0", vector_entry_point=f"{__name__}:Masked")


class ResetsItself(Walks):
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "seeded_resets": True}  # noqa: RUF012 # as in gymnasium


gym.register("BlockOfResetsItself-v0", vector_entry_point=f"{__name__}:ResetsItself")


class Batches(Walks):
    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 # as in gymnasium


gym.register("BlockOfBatches-v0", vector_entry_point=f"{__name__}:Batches")


def collector(
    id: str, *, lstm: bool = False, stepping: str = "Serial", batch: int = B, **environment: Any
) -> BlockCollector:
    """Returns a collector with its own environments, and with the same network each time."""
    spec = Environment(id=id, stepping=stepping, **environment)
    space = make_spaces(spec)
    torch.manual_seed(1)
    network = Network(mlp=Mlp(hidden_sizes=(4,)), lstm=Lstm(hidden_size=3) if lstm else None)
    normalize = Normalize(observations=True, rewards=True)
    made = build_actor_critic(network, *space, normalize=normalize)
    stepper = Stepper(make_seeded_environments(spec, batch), id)
    return UnrollBlockCollector.of(SETTINGS, T, *made, stepper, 7)


def transition_collector(id: str, *, batch: int = B, **environment: Any) -> TransitionBlockCollector:
    """Returns a collector of transitions of 3 steps, which explores with noise that it remembers."""
    spec = Environment(id=id, **environment)
    torch.manual_seed(1)
    settings = DdpgApex(noise="OrnsteinUhlenbeck", warmup="Random")
    network, actions = build_deterministic(
        Network(mlp=Mlp(hidden_sizes=(4,))), *make_spaces(spec), normalize=None
    )
    return TransitionBlockCollector(
        DdpgActor(network, actions, settings),
        Stepper(make_seeded_environments(spec, batch), id),
        length=7,
        n_step=3,
        discount=0.9,
        reward_clip=None,
        reward_scale=1.0,
        seed=7,
        environments=range(batch),
        total=8 * batch,
        warmup_steps=2 * 7 * 8 * batch,
    )


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, column in one.items():
        columns = (column,) if isinstance(column, Tensor) else column
        others = (other[name],) if isinstance(column, Tensor) else other[name]
        assert all(map(torch.equal, columns, others)), name


@pytest.mark.parametrize(
    "environment",
    [
        {"id": "CartPole-v1", "lstm": True},
        {"id": "CartPole-v1", "batch": 1},
        {"id": "CartPole-v1", "batch": 6, "max_episode_steps": 30},
        {"id": "CartPole-v1", "stepping": "Threads"},
        {"id": "Pendulum-v1", "max_episode_steps": 15},
        {"id": "BlockOfWalks-v0"},
    ],
)
def test_a_block_that_moves_after_each_rollout_gives_the_same_rollouts(environment: dict[str, Any]) -> None:
    stays, moves = collector(**environment), [collector(**environment), collector(**environment)]
    stays.begin(5, 0, None)
    state: BlockState | None = None
    ended = 0
    for update in range(8):
        expected: dict[str, Any] = stays.rollout()
        mover = moves[update % 2]
        mover.begin(5, update, state)
        found: dict[str, Any] = mover.rollout()
        assert_equal(expected, found)
        assert stays.after["episodes"] == mover.after["episodes"]
        assert stays.after["discounted_return"] == mover.after["discounted_return"]
        state = following(state, found, mover.after)
        ended += int(expected["episodes"].sum())
    assert ended > 0


def test_a_block_of_transitions_moves_with_its_unfinished_transitions_and_its_noise() -> None:
    stays = transition_collector("Pendulum-v1", max_episode_steps=15)
    moves = [transition_collector("Pendulum-v1", max_episode_steps=15) for _ in range(2)]
    # Each process has other blocks too.
    for mover in moves:
        mover.begin(4, 0, None)
        mover.rollout()
    stays.begin(5, 0, None)
    state: BlockState | None = None
    steps = transitions = 0
    for update in range(8):
        expected = stays.rollout()
        mover = moves[update % 2]
        mover.begin(5, update, state)
        found = mover.rollout()
        assert_equal(expected.pop("transitions"), found.pop("transitions"))
        numbers = ("steps", "episodes")
        found_steps = found["steps"]
        assert [expected.pop(name) for name in numbers] == [found.pop(name) for name in numbers]
        assert_equal(expected, found)
        state = following(state, found, mover.after)
        assert stays.actor.warming_up == (update < 2)
        steps, transitions = steps + found_steps, transitions + len(found["priorities"])
    assert 0 < steps - transitions <= 3 * B  # these are not complete yet


def test_all_episodes_of_all_environments_begin_differently() -> None:
    one = collector("CartPole-v1")
    beginnings: list[tuple[float, ...]] = []
    for block in range(3):
        one.begin(block, 0, None)
        for _ in range(5):
            unroll = one.rollout()
            firsts = unroll["first"][:-1]
            beginnings += [tuple(row.tolist()) for row in unroll["observation"][:-1][firsts]]
    assert len(set(beginnings)) == len(beginnings) > 3 * (B + 3)


def test_blocks_updates_and_seeds_differ() -> None:
    one = collector("CartPole-v1")
    firsts = []
    for block, update in ((0, 0), (1, 0), (0, 1)):
        one.begin(block, update, None)
        firsts.append(one.rollout()["action"])
    assert not torch.equal(firsts[0], firsts[1])
    assert not torch.equal(firsts[0], firsts[2])
    seeds = [seed_of(7, b, episode) for b in range(20) for episode in range(20)]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize(
    ("source", "where"),
    [("episodes", "at the first reset"), ("step", "at step 5"), ("reward", "at step 1")],
)
def test_an_environment_that_is_no_function_of_seed_and_actions_is_found(source: str, where: str) -> None:
    with pytest.raises(BadConfiguration, match=f"environment 'Clock-v0' is not a function .* {where}"):
        collector("Clock-v0", kwargs={"source": source}).check()
    collector("Clock-v0", kwargs={"source": "none"}).check()


def test_an_environment_of_transitions_is_checked_too() -> None:
    one = transition_collector("Pendulum-v1")
    one.check()
    assert one.block == -1


def test_an_episode_that_goes_another_way_when_it_is_played_again_is_found() -> None:
    one = collector("Clock-v0", kwargs={"source": "step"})
    one.length = 8
    one.begin(0, 0, None)
    state = following(None, one.rollout(), one.after)
    with pytest.raises(BadConfiguration, match="in the first 8 steps of an episode"):
        one.begin(0, 1, state)


def test_vector_environments_alone_are_refused() -> None:
    with pytest.raises(
        BadConfiguration, match="'BlockOfBatches-v0' has only a vector_entry_point: register an"
    ):
        make_seeded_environments(Environment(id="BlockOfBatches-v0"), B)
    with pytest.raises(BadConfiguration, match=r"resets itself: set .* to AutoresetMode\.DISABLED"):
        make_seeded_environments(Environment(id="BlockOfResetsItself-v0"), B)


def test_one_environment_is_made_by_its_entry_point() -> None:
    gym.register("BlockOfEither-v0", entry_point=f"{__name__}:Clock", vector_entry_point=f"{__name__}:Walks")
    one = make_seeded_environments(Environment(id="BlockOfEither-v0", kwargs={"source": "none"}), 1)
    one.reset(seed=0, options=block_options((1,), [0], [0]))
    one.close()


def test_an_environment_that_waits_for_its_episode_gets_valid_actions() -> None:
    """Otherwise it would get the actions of other episodes, and might raise an error."""
    stays, moves = collector("BlockOfMasked-v0"), collector("BlockOfMasked-v0")
    stays.begin(5, 0, None)
    moves.begin(5, 0, None)
    state: BlockState | None = None
    taken_over = 0
    for update in range(8):
        # An episode that has just begun has no action that is known to be valid.
        if state is not None and (state.ages > 0).all():
            moves.begin(5, update, state)
            taken_over += 1
        expected: dict[str, Any] = stays.rollout()
        found: dict[str, Any] = moves.rollout()
        assert_equal(expected, found)
        state = following(state, found, moves.after)
    assert taken_over > 2
