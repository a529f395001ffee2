"""Wraps a vector environment so that it returns packed observations (see ``packed_space``)."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from rltraining_trainer.environments.faults import FAILED
from rltraining_trainer.environments.masks import check_masks, mask_array
from rltraining_trainer.environments.nested_spaces import batch_of_one, discrete_choices
from rltraining_trainer.environments.pack_space import pack_space
from rltraining_trainer.environments.packed_space import MASK_KEY, PackedSpace, WrongPart
from rltraining_trainer.environments.single import SingleEnvironment

_LOG = logging.getLogger(__name__)


def pack_environments(environments: VectorEnv, name: str) -> VectorEnv:
    """Packs composite observations and masks of valid actions into one array per observation.

    Returns ``environments`` itself if there is nothing to pack. Resets one environment to find out
    whether its infos have a mask.

    Raises:
        BadConfiguration: No network supports a part, or the mask does not fit the actions.
    """
    space, action_space = environments.single_observation_space, environments.single_action_space
    is_dict_with_mask = isinstance(space, gym.spaces.Dict) and MASK_KEY in space.spaces
    in_info = bool(discrete_choices(action_space)) and not is_dict_with_mask and _gives_mask(environments)
    packed, left_out = pack_space(space, action_space, mask_in_info=in_info)
    if left_out:
        _LOG.warning(
            "spec.environment.id: text in observations of %r is left out: %s", name, ", ".join(left_out)
        )
    return PackedEnvironments(environments, packed) if isinstance(packed, PackedSpace) else environments


class PackedEnvironments(VectorEnv):
    """Returns the observations of ``environments`` as rows of ``space``.

    Each row holds the mask of its own observation, also in ``final_obs`` (from ``final_info``). The
    last observation of an episode does not need a mask, since no action follows it.
    """

    def __init__(self, environments: VectorEnv, space: PackedSpace) -> None:
        self.environments, self.space = environments, space
        self.num_envs = environments.num_envs
        self.spec, self.render_mode = environments.spec, environments.render_mode
        self.metadata = environments.metadata
        self.single_observation_space = space
        self.observation_space = batch_space(space, self.num_envs)
        self.single_action_space, self.action_space = (
            environments.single_action_space,
            environments.action_space,
        )
        self._masks = np.ones((self.num_envs, sum(space.choices)), np.uint8)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        only = None if options is None else options.get("reset_mask")
        observation, info = self.environments.reset(seed=seed, options=options)
        none = np.zeros(self.num_envs, bool)
        # Environments that were not reset keep their masks.
        return self._packed(observation, info, ended=none, kept=none if only is None else ~only), info

    def step(self, actions: Any) -> tuple[np.ndarray, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.environments.step(actions)
        over = np.asarray(terminated, bool) | np.asarray(truncated, bool)
        none = np.zeros(self.num_envs, bool)
        if self.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP:
            if over.any():
                info = {**info, "final_obs": self._final(info, over)}
            over = none  # the observations are those of the next episodes
        return self._packed(observation, info, ended=over, kept=none), reward, terminated, truncated, info

    def render(self) -> tuple[Any, ...] | None:
        return self.environments.render()

    def close_extras(self, **kwargs: Any) -> None:
        self.environments.close()

    @property
    def unwrapped(self) -> VectorEnv:  # type: ignore[override]
        return self.environments.unwrapped

    def _packed(
        self, observation: Any, info: dict[str, Any], *, ended: np.ndarray, kept: np.ndarray
    ) -> np.ndarray:
        """Packs observations into rows ``[B, P]``.

        Args:
            observation: Observations ``[B, ...]`` before packing.
            info: Infos that belong to them.
            ended: ``[B]`` bool, observations that end an episode.
            kept: ``[B]`` bool, environments whose masks have not changed.
        """
        exempt = ended.copy()
        for number in info.get(FAILED, ()):
            exempt[number] = True
        if self.space.mask_from_info:
            self._take_masks(info, exempt, kept)
        rows = self.space.pack(observation, self.num_envs, self._masks)
        check_masks(self.space, rows, exempt)
        return rows

    def _take_masks(self, info: dict[str, Any], exempt: np.ndarray, kept: np.ndarray) -> None:
        """Stores the masks in ``info``. Environments in ``exempt`` or ``kept`` may lack one."""
        given = info.get(f"_{MASK_KEY}", np.full(self.num_envs, MASK_KEY in info))
        masks = info.get(MASK_KEY)
        for b in range(self.num_envs):
            if masks is not None and given[b]:
                self._masks[b] = self._mask(masks[b])
            elif exempt[b]:
                self._masks[b] = 1
            elif not kept[b]:
                raise WrongPart(
                    f'must return info["{MASK_KEY}"] with each observation, as the first reset did'
                )

    def _mask(self, value: Any) -> np.ndarray:
        size = sum(self.space.choices)
        mask = mask_array(value, size)
        if mask is None:
            raise WrongPart(
                f'must return info["{MASK_KEY}"] as an array of {size} zeros and ones, one for each choice of '
                f"{self.single_action_space}, got {_describe(value)}"
            )
        return mask

    def _final(self, info: dict[str, Any], over: np.ndarray) -> np.ndarray:
        """Packs the last observations of ended episodes. Returns objects ``[B]``: rows, or None."""
        final = np.full(self.num_envs, None, dtype=object)
        masks = info.get("final_info", {}).get(MASK_KEY)
        everything = np.ones(sum(self.space.choices), np.uint8)
        for b in np.flatnonzero(over).tolist():
            mask = None if masks is None or masks[b] is None else mask_array(masks[b], len(everything))
            one = batch_of_one(info["final_obs"][b])
            row = self.space.pack(one, 1, (everything if mask is None else mask)[np.newaxis])
            check_masks(self.space, row, np.ones(1, bool))
            final[b] = row[0]
        return final


def _gives_mask(environments: VectorEnv) -> bool:
    """Returns whether the infos of a reset have a mask.

    Errors are ignored here, since the next reset raises them again.
    """
    try:
        if isinstance(environments, SyncVectorEnv):
            _, info = environments.envs[0].reset()
        elif isinstance(environments, SingleEnvironment):
            _, info = environments.environment.reset()
        else:
            _, info = environments.reset()
    except (Exception, SystemExit):
        return False
    return MASK_KEY in info


def _describe(value: Any) -> str:
    try:
        return f"an array of shape {np.shape(value)}"
    except ValueError:
        return "lists of different lengths"
