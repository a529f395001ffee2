"""Games of the Arcade Learning Environment: their observations, and where their episodes end."""

from __future__ import annotations

from typing import Any

import ale_py
import numpy as np
import pytest
import torch
from ale_py.roms import get_rom_path
from rltraining_api.environment import Environment
from rltraining_api.network import Mlp, Network
from rltraining_trainer.algorithms.transition_collector import TransitionCollector
from rltraining_trainer.algorithms.transitions import Acted
from rltraining_trainer.algorithms.unrolls import UnrollCollector
from rltraining_trainer.environments import EpisodeTracker, Step, Stepper, make_environments
from rltraining_trainer.networks import build_actor_critic

B, DISCOUNT = 2, 0.9
FIRE = 1
LUMINANCE = np.array([0.299, 0.587, 0.114])


def games(
    game: str = "Breakout", count: int = B, *, max_episode_steps: int | None = None, **atari: Any
) -> Stepper:
    """Makes `count` games.

    ``atari`` has fields in camelCase. Actions are not sticky unless ``atari`` sets ``stickyActions``.
    """
    spec = Environment.model_validate(
        {"id": f"ALE/{game}-v5", "maxEpisodeSteps": max_episode_steps, "atari": {"stickyActions": 0} | atari}
    )
    return Stepper(make_environments(spec, count), spec.id)


def play(stepper: Stepper, actions: np.ndarray, seed: int = 0) -> list[Step]:
    """Plays ``actions`` ``[T, B]``."""
    stepper.reset(seed)
    return [stepper.step(action) for action in actions]


def random_actions(steps: int, count: int = B, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, (steps, count))


def fire(steps: int) -> np.ndarray:
    """Plays Breakout without moving, which loses a life about every 25 steps."""
    return np.full((steps, B), FIRE)


class Naive:
    """One game in grey, preprocessed one frame at a time as in the papers."""

    def __init__(self, game: str) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(get_rom_path(game))
        self.actions = self.ale.getMinimalActionSet()
        self.stack = [np.zeros((84, 84))] * 4

    def reset(self) -> None:
        self.ale.reset_game()
        if ale_py.Action.FIRE in self.actions:
            self.ale.act(ale_py.Action.FIRE)
        self._see([self.ale.getScreenGrayscale()])

    def step(self, action: int) -> float:
        reward, screens = 0.0, []
        for _ in range(4):
            reward += self.ale.act(self.actions[action])
            screens.append(self.ale.getScreenGrayscale())
        self._see(screens[-2:])
        return reward

    def _see(self, screens: list[np.ndarray]) -> None:
        self.stack = [*self.stack[1:], shrunk(np.max(screens, 0), 84)]


def shrunk(screen: np.ndarray, size: int) -> np.ndarray:
    """Resizes ``[H, W]`` to ``[size, size]``: each pixel is the mean of the area that it covers."""
    rows, columns = (_areas(length, size) for length in screen.shape)
    return rows @ screen @ columns.T


def _areas(length: int, size: int) -> np.ndarray:
    """Returns the weight of each old pixel in each new one, ``[size, length]``."""
    borders = np.linspace(0, length, size + 1)
    pixel = np.arange(length)
    overlap = np.minimum(borders[1:, None], pixel + 1) - np.maximum(borders[:-1, None], pixel)
    return overlap.clip(0) * size / length


@pytest.mark.parametrize(("game", "scores"), [("Breakout", False), ("Assault", True)])
def test_a_game_is_seen_as_published(game: str, scores: bool) -> None:
    """Breakout has no ball before FIRE, and Assault has early rewards."""
    stepper, naive = games(game, 1, noopMax=0), Naive(game.lower())
    naive.reset()
    observation = stepper.reset(0)
    assert observation.dtype == np.uint8
    assert observation.shape == (1, *stepper.environments.single_observation_space.shape)
    rewards = 0.0
    for action in random_actions(20, 1):
        assert np.abs(observation[0] - np.stack(naive.stack)).max() < 1.01  # rounding
        step = stepper.step(action)
        reward, observation = naive.step(action[0]), step.observation
        assert step.reward == reward
        rewards += reward
    assert (rewards > 0) == scores


def test_colours_are_channels_of_the_frames_that_are_seen_in_grey() -> None:
    """Channels are ordered by frame, then by colour, oldest frame first."""
    coloured, grey = games(count=1, grayscale=False), games(count=1)
    actions = fire(15)[:, :1]
    for step, other in zip(play(coloured, actions), play(grey, actions), strict=True):
        assert step.observation.shape == (1, *coloured.environments.single_observation_space.shape)
        frames = step.observation.reshape(1, 4, 3, 84, 84)
        luminance = np.einsum("c,bfchw->bfhw", LUMINANCE, frames)
        assert (
            np.abs(luminance - other.observation).max() < 10
        )  # the maximum of two frames is taken of colours, or of greys
        assert np.array_equal(step.reward, other.reward)


def test_spaces_are_those_of_the_preprocessing() -> None:
    environments = games("Pong", 1, frameStack=3, screenSize=40, fullActionSpace=True).environments
    assert environments.single_observation_space.shape == (3, 40, 40)
    assert environments.single_action_space.n == 18
    default = make_environments(Environment(id="ALE/Pong-v5"), 1)
    assert default.single_observation_space.shape == (4, 84, 84)
    assert default.single_action_space.n == 6


def test_episodes_begin_with_fewer_no_ops_than_noop_max() -> None:
    environments = games(noopMax=4, count=1).environments
    environments.reset(seed=0)
    frames = {int(frame) for _ in range(9) for frame in environments.reset()[1]["episode_frame_number"]}
    assert frames == {1, 2, 3}


def test_the_same_seed_plays_the_same_games_and_sticky_actions_differ_between_environments() -> None:
    actions = random_actions(12, 1).repeat(B, 1)

    def observations(stepper: Stepper, seed: int) -> np.ndarray:
        return np.stack([step.observation for step in play(stepper, actions, seed)])

    stepper = games(noopMax=0, stickyActions=0.5)
    sticky, other = observations(stepper, 2**31 - 1), observations(stepper, 1)
    assert np.array_equal(sticky, observations(games(noopMax=0, stickyActions=0.5), 2**31 - 1))
    assert not np.array_equal(sticky, other)
    assert not np.array_equal(sticky[:, 0], sticky[:, 1])
    plain = observations(games(noopMax=0), 1)
    assert np.array_equal(plain[:, 0], plain[:, 1])


@pytest.fixture(scope="module")
def plain() -> list[Step]:
    return play(games(), fire(160))


@pytest.fixture(scope="module")
def lives() -> list[Step]:
    """The same games."""
    return play(games(lifeLossEndsEpisode=True), fire(160))


def test_a_lost_life_is_terminal_for_learning_and_the_game_goes_on(
    plain: list[Step], lives: list[Step]
) -> None:
    for before, step in zip(plain, lives, strict=True):
        assert np.array_equal(step.observation, before.observation)
        assert np.array_equal(step.reward, before.reward)
        assert np.array_equal(step.over, before.over)
        assert np.array_equal(step.valid, before.valid)
        assert np.array_equal(before.over, before.terminated)
        lost = step.terminated & ~step.over
        assert np.array_equal(step.first, before.first | lost)
        assert step.valid[lost].all()
    for b in range(B):
        ends = [bool(step.over[b]) for step in lives if step.terminated[b]]
        assert ends[:5] == [False] * 4 + [True], "five lives a game"


def test_max_episode_steps_truncates_a_game() -> None:
    steps = play(games(count=1, max_episode_steps=7, frameSkip=2), random_actions(8, 1))
    assert [step.truncated.all() for step in steps] == [False] * 6 + [True, False]
    assert not any(step.terminated.any() for step in steps)


def test_returns_are_those_of_whole_games_though_lives_and_clipped_rewards_are_learnt_from() -> None:
    stepper = games("SpaceInvaders", lifeLossEndsEpisode=True, max_episode_steps=330)
    spaces = stepper.environments.single_observation_space, stepper.environments.single_action_space
    network, distribution = build_actor_critic(Network(mlp=Mlp(hidden_sizes=(8,))), *spaces)
    collector = UnrollCollector(network, distribution, stepper, 340, DISCOUNT, 1.0, 1.0, seed=0)
    torch.manual_seed(0)
    unroll = collector.collect()
    ended, valid, first = (unroll[name].numpy() for name in ("ended", "valid", "first"))

    again = play(games("SpaceInvaders", max_episode_steps=330), unroll["action"].numpy())
    rewards, over, really = (
        np.stack([getattr(step, name) for step in again]) for name in ("reward", "over", "valid")
    )
    assert rewards.max() > 1
    assert np.array_equal(unroll["reward"], rewards.clip(-1, 1))
    assert np.array_equal(valid, really)
    returns, lengths = EpisodeTracker(B).add(rewards, over, really)
    assert len(returns) >= B
    assert unroll["episode_return"].tolist() == returns.tolist()
    assert unroll["episode_length"].tolist() == lengths.tolist()
    assert ended.sum() > over.sum(), "lives were lost"
    assert first[1:][ended & ~over].all()


class Still:
    """An actor that fires, and values everything at 1."""

    normalizer = None

    def place(self, environments: range, total: int) -> bool:
        return False

    def act(self, observation: torch.Tensor, first: torch.Tensor) -> Acted:
        ones = torch.ones(len(observation))
        return Acted(ones.long(), ones, ones)

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(observation))

    def to_environment(self, action: torch.Tensor) -> np.ndarray:
        return action.numpy()


def test_transitions_end_with_a_life_and_episodes_with_the_game(lives: list[Step]) -> None:
    stepper = games(lifeLossEndsEpisode=True)
    told = range(B), B  # all of them are reported, since they explore alike
    collector = TransitionCollector(Still(), stepper, 160, 3, DISCOUNT, 1.0, 1.0, 0, *told)
    block = collector.collect()
    lost = [t for t, step in enumerate(lives) for _ in range(step.terminated.sum())]
    over = sum(int(step.over.sum()) for step in lives)

    begun = [start for t in lost for start in (t - 2, t - 1, t) if start < 160 - 3]
    assert int((block.transitions["discount"] == 0).sum()) == len(begun)
    assert block.episodes == len(block.episode_return) == over
    assert len(lost) > 4 * over > 0


def test_a_game_is_shown_in_colours_as_it_is_played() -> None:
    spec = Environment.model_validate(
        {"id": "ALE/Breakout-v5", "atari": {"stickyActions": 0.25, "noopMax": 30}}
    )
    stepper = Stepper(make_environments(spec, 1, render_mode="rgb_array"), spec.id)
    environments = stepper.environments
    assert environments.metadata["render_fps"] == 15
    stepper.reset(0)
    resets = 0
    for t, action in enumerate(fire(160)[:, :1]):
        step = stepper.step(action)
        resets += int((~step.valid).sum())
        if t % 10 == 0 or step.over.any():
            for observed, shown in zip(step.observation, environments.render(), strict=True):
                assert shown.shape == (210, 160, 3)
                # Means of the same parts of both pictures; observations are the maximum of two frames.
                means = (shown @ LUMINANCE).reshape(42, 5, 4, 40).mean((1, 3))
                assert np.abs(means - observed[-1].reshape(42, 2, 4, 21).mean((1, 3))).max() < 4
    assert resets > 0
