"""Wraps a vector environment so that it returns packed observations (see ``packed_space``)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space, iterate

from rltraining_trainer.environments.faults import FAILED
from rltraining_trainer.environments.masks import fill_empty_masks, mask_array
from rltraining_trainer.environments.mistakes import WrongObservation, environment_error
from rltraining_trainer.environments.nested_spaces import batch_of_one, discrete_choices
from rltraining_trainer.environments.pack_space import pack_space
from rltraining_trainer.environments.packed_space import MASK_KEY, PackedSpace
from rltraining_trainer.environments.single import SingleEnvironment
from rltraining_trainer.errors import is_ctrl_c

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
    return PackedEnvironments(environments, packed, name) if isinstance(packed, PackedSpace) else environments


class PackedEnvironments(VectorEnv):
    """Returns the observations of ``environments`` as rows of ``space``.

    Each row holds the mask of the row's observation, also in ``final_obs`` (from ``final_info``). The
    last observation of an episode does not need a mask, since no action follows it.
    """

    def __init__(self, environments: VectorEnv, space: PackedSpace, name: str) -> None:
        """``name``: the environment's name in messages."""
        self._name = name
        self.environments, self.space = environments, space
        self.num_envs = environments.num_envs
        self.spec, self.render_mode = environments.spec, environments.render_mode
        self.metadata = environments.metadata
        self.single_observation_space = space
        self.observation_space = batch_space(space, self.num_envs)
        self.single_action_space = environments.single_action_space
        self.action_space = environments.action_space
        self._masks = np.ones((self.num_envs, sum(space.choices)), np.uint8)
        self.given: Any = None
        """The newest observations ``[B, ...]`` before packing."""

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        only = None if options is None else options.get("reset_mask")
        observation, info = self.environments.reset(seed=seed, options=options)
        # Environments that were not reset keep their masks.
        kept = np.zeros(self.num_envs, bool) if only is None else ~only
        return self._packed("reset", observation, info, ended=kept, kept=kept)

    def step(self, actions: Any) -> tuple[np.ndarray, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.environments.step(actions)
        over = np.asarray(terminated, bool) | np.asarray(truncated, bool)
        none = np.zeros(self.num_envs, bool)
        if self.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP:
            if over.any():
                info = {**info, "final_obs": self._final(info, over)}
            over = none  # the observations belong to the next episodes
        rows, info = self._packed("step", observation, info, ended=over, kept=none)
        return rows, reward, terminated, truncated, info

    def render(self) -> tuple[Any, ...] | None:
        return self.environments.render()

    def close_extras(self, **kwargs: Any) -> None:
        self.environments.close()

    @property
    def unwrapped(self) -> VectorEnv:  # type: ignore[override]
        return self.environments.unwrapped

    def _packed(
        self,
        method: str,
        observation: Any,
        info: dict[str, Any],
        *,
        ended: np.ndarray,
        kept: np.ndarray,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Packs observations into rows ``[B, P]``. Invalid masks are failures of environments.

        Args:
            method: ``reset`` or ``step``, which returned the observations.
            observation: Observations ``[B, ...]`` before packing.
            info: Infos of these observations.
            ended: ``[B]`` bool, observations that no action follows.
            kept: ``[B]`` bool, environments whose masks have not changed.

        Returns:
            The rows, and ``info`` with all failures.
        """
        failed: dict[int, Exception] = dict(info.get(FAILED, {}))
        exempt = ended.copy()
        exempt[list(failed)] = True
        self.given = observation
        # Pack the observations and check the masks.
        wrong = self._take_masks(info, exempt, kept) if self.space.mask_from_info else {}
        rows = self.space.pack(observation, self.num_envs, self._masks)
        wrong |= fill_empty_masks(self.space, rows)
        # Report invalid masks of running episodes as failures.
        space = self.space.original
        failed |= {
            b: environment_error(self._name, method, error, space)
            for b, error in wrong.items()
            if not exempt[b]
        }
        return rows, {**info, FAILED: failed} if failed else info

    def _take_masks(
        self, info: dict[str, Any], exempt: np.ndarray, kept: np.ndarray
    ) -> dict[int, WrongObservation]:
        """Stores the masks in ``info``. Environments in ``exempt`` or ``kept`` may lack one.

        Returns:
            Errors by environment. All actions are valid in the masks of these environments.
        """
        errors: dict[int, WrongObservation] = {}
        given = info.get(f"_{MASK_KEY}", np.full(self.num_envs, MASK_KEY in info))
        masks, size = info.get(MASK_KEY), sum(self.space.choices)
        for b in range(self.num_envs):
            if kept[b]:
                continue
            mask = None
            if masks is not None and given[b]:
                mask = mask_array(masks[b], size)
                if mask is None:
                    errors[b] = WrongObservation(
                        f'must return info["{MASK_KEY}"] as an array of {size} zeros and ones, one for '
                        f"each choice of {self.single_action_space}, got {_describe(masks[b])}"
                    )
            elif not exempt[b]:
                errors[b] = WrongObservation(
                    f'must return info["{MASK_KEY}"] with each observation, as the first reset did'
                )
            self._masks[b] = 1 if mask is None else mask
        return errors

    def _final(self, info: dict[str, Any], over: np.ndarray) -> np.ndarray:
        """Packs the last observations of ended episodes. Returns objects ``[B]``: rows, or None."""
        final = np.full(self.num_envs, None, dtype=object)
        masks = info.get("final_info", {}).get(MASK_KEY)
        everything = np.ones(sum(self.space.choices), np.uint8)
        for b in np.flatnonzero(over).tolist():
            mask = None if masks is None or masks[b] is None else mask_array(masks[b], len(everything))
            one = batch_of_one(info["final_obs"][b])
            row = self.space.pack(one, 1, (everything if mask is None else mask)[np.newaxis])
            fill_empty_masks(self.space, row)
            final[b] = row[0]
        return final


def given_observations(environments: VectorEnv, default: Any) -> Any:
    """Returns the newest observation of each environment as the environment returned it.

    Gymnasium's SyncVectorEnv and this package's classes keep them in ``_env_obs``, also if they
    cannot be batched. Returns ``default`` for a user's vector environment that is not packed, or has
    returned nothing yet.
    """
    if (kept := getattr(environments.unwrapped, "_env_obs", None)) is not None:
        return kept
    if isinstance(environments, PackedEnvironments) and environments.given is not None:
        return list(iterate(environments.environments.observation_space, environments.given))
    return default


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
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        return False
    return isinstance(info, Mapping) and MASK_KEY in info


def _describe(value: Any) -> str:
    try:
        values = f" with the values {np.ravel(value)[:4].tolist()}" if np.size(value) <= 4 else ""
        return f"an array of shape {np.shape(value)}{values}"
    except ValueError:
        return "lists of different lengths"
