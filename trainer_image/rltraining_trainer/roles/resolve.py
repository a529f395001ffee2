"""Fills in the fields that the user has not set, at the start of a process, from the preset for the environment's spaces."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
from gymnasium import Space, spaces
from pydantic import ValidationError
from rltraining_api.explain import explain
from rltraining_api.fields import Preset
from rltraining_api.job import RLTrainingJob
from rltraining_api.presets import resolve

from rltraining_trainer.environments import make_spaces
from rltraining_trainer.environments.packed_space import PackedSpace
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.context import Context

_LOG = logging.getLogger(__name__)

SMALLEST_IMAGE = 36
"""Height and width that the convolutions of Mnih et al. 2015 need."""


def resolve_defaults(context: Context) -> Context:
    """Returns the context with a job in which each field is set. Fields that the user has not set have the defaults of
    `spec.preset` or, without it, of the preset for the spaces of the environment.

    The result is the same in all processes of a job.

    Raises:
        BadConfiguration: there is no such environment, or the user's settings conflict with the preset.
        UserCodeError: the environment's module or constructor raised.
    """
    job = context.job
    preset = job.spec.preset or preset_of(*make_spaces(job.spec.environment))
    try:
        resolved = resolve(job, preset)
    except ValidationError as error:
        problems = "; ".join(explain(error, RLTrainingJob))
        raise BadConfiguration(f"with the defaults of preset {preset}, {problems}") from error
    _LOG.info("defaults of preset %s: %s", preset, ", ".join(resolved.sources) or "none, all is set")
    return dataclasses.replace(context, job=resolved.job)


def preset_of(observation_space: Space, action_space: Space) -> Preset:
    """Returns the preset for these spaces.

    Atari if the observation is a large image of bytes, or has one among its parts. Otherwise
    MuJoCo if actions are a Box, and Classic if not.
    """
    arrays: list[Space] = [observation_space]
    if isinstance(observation_space, PackedSpace):
        arrays = [part.space for part in observation_space.parts]
    if any(map(_is_image, arrays)):
        return "Atari"
    return "MuJoCo" if isinstance(action_space, spaces.Box) else "Classic"


def has_box(action_space: Space) -> bool:
    """Returns whether actions are a Box or have one among their parts."""
    if isinstance(action_space, spaces.Dict | spaces.Tuple):
        parts = action_space.values() if isinstance(action_space, spaces.Dict) else action_space
        return any(map(has_box, parts))
    return isinstance(action_space, spaces.Box)


def _is_image(space: Space) -> bool:
    """Returns whether these are images of a size for convolutions, channels first or last."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) != 3:
        return False
    return sorted(space.shape)[1] >= SMALLEST_IMAGE
