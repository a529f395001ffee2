"""Games of the Arcade Learning Environment with the published preprocessing."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from rltraining_api.environment import Atari

from rltraining_trainer.environments.stepper import LIFE_LOST

FRAMES_PER_SECOND = 60
MAX_FRAMES = 108_000
"""Half an hour of play, after which episodes are truncated (Machado et al. 2018, -v5 games)."""
# ALE counts frames with 32 bits.
MOST_FRAMES = 2**30
SCREEN: dict[str, Any] = {"img_height": 210, "img_width": 160, "grayscale": False, "stack_num": 1}


class AtariGames(AtariVectorEnv):
    """B games with observations ``[B, stack, H, W]`` uint8, or ``[B, stack * 3, H, W]`` in colour.

    Rewards are not clipped. Up to ``torch.get_num_threads()`` threads step the games, like the
    network, since these are the cores of this process. With ``life_loss_ends_episode`` infos have
    ``LIFE_LOST`` ``[B]`` bool: a life was lost and the game continues.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        atari: Atari,
        *,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """``game``: name of the ROM, such as ``space_invaders``. ``kwargs``: arguments of ALE."""
        frames = MAX_FRAMES if max_episode_steps is None else max_episode_steps * atari.frame_skip
        options: dict[str, Any] = {
            "num_threads": min(num_envs, torch.get_num_threads()),
            "autoreset_mode": AutoresetMode.NEXT_STEP,
            "frameskip": atari.frame_skip,
            "noop_max": atari.noop_max,
            "repeat_action_probability": atari.sticky_actions,
            "full_action_space": atari.full_action_space,
            "max_num_frames_per_episode": min(frames, MOST_FRAMES),
            "reward_clipping": False,
            **kwargs,
        }
        super().__init__(
            game,
            num_envs,
            img_height=atari.screen_size,
            img_width=atari.screen_size,
            grayscale=atari.grayscale,
            stack_num=atari.frame_stack,
            **options,
        )
        self.metadata = {
            "autoreset_mode": AutoresetMode.NEXT_STEP,
            "render_modes": ["rgb_array"],
            "render_fps": FRAMES_PER_SECOND / atari.frame_skip,
        }
        self.render_mode = render_mode
        # The emulators do not expose their screens, so a second copy of the games is rendered.
        self._screens = AtariVectorEnv(game, num_envs, **options, **SCREEN) if render_mode else None
        self._shown: np.ndarray | None = None
        self._lives = np.zeros(num_envs, np.int32) if atari.life_loss_ends_episode else None
        if not atari.grayscale:
            channels = atari.frame_stack * 3
            shape = (channels, atari.screen_size, atari.screen_size)
            self.single_observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
            self.observation_space = batch_space(self.single_observation_space, num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the games. ``seed`` is an int or None."""
        seeds: Any = None
        if seed is not None or self._screens is not None:
            # ALE's seeds have 31 bits.
            seeds = np.random.SeedSequence(seed).generate_state(self.num_envs) >> 1
        if self._screens is not None:
            frames, _ = self._screens.reset(seed=seeds, options=options)
            self._shown = frames[:, 0]
        observation, info = super().reset(seed=seeds, options=options)
        if self._lives is not None:
            self._lives = info["lives"]
        return self._channels_first(observation), info

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._screens is not None:
            frames, *_ = self._screens.step(actions)
            self._shown = frames[:, 0]
        observation, reward, terminated, truncated, info = super().step(actions)
        if self._lives is not None:
            # Some games (Q*bert) continue without lives for a few frames.
            info[LIFE_LOST] = (info["lives"] < self._lives) & (info["lives"] > 0) & ~terminated
            self._lives = info["lives"]
        return self._channels_first(observation), reward, terminated, truncated, info

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Returns the screen ``[210, 160, 3]`` uint8 of each game if ``render_mode`` is set."""
        return None if self._shown is None else tuple(self._shown)

    def _channels_first(self, observation: np.ndarray) -> np.ndarray:
        """Converts stacks of colour frames ``[B, stack, H, W, 3]`` to ``[B, stack * 3, H, W]``."""
        if self.grayscale:
            return observation
        return np.moveaxis(observation, -1, 2).reshape(self.observation_space.shape)
