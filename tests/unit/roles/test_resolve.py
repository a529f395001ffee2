"""At a process's start, the environment's spaces select the preset, and every default is filled in."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces
from rltraining_api.fields import Preset
from rltraining_api.job import RLTrainingJob
from rltraining_trainer.environments.pack_space import pack_space
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.resolve import preset_of, resolve_defaults

BOX, DISCRETE = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)


def image(*shape: int, dtype: type = np.uint8) -> Space:
    return spaces.Box(0, 255, shape, dtype)


def parts(*several: Space) -> Space:
    """Combines the spaces as the parts of one observation."""
    return pack_space(spaces.Tuple(several), DISCRETE)[0]


@pytest.mark.parametrize(
    ("observation", "action", "preset"),
    [
        (image(84, 84, 3), DISCRETE, "Atari"),
        (image(4, 84, 84), BOX, "Atari"),
        (parts(image(84, 84, 3), BOX), DISCRETE, "Atari"),
        (parts(spaces.Dict({"eye": image(3, 48, 64)}), DISCRETE), BOX, "Atari"),
        (parts(image(7, 7, 3), BOX), DISCRETE, "Classic"),
        (image(7, 7, 3), DISCRETE, "Classic"),
        (image(128), DISCRETE, "Classic"),
        (BOX, DISCRETE, "Classic"),
        (DISCRETE, DISCRETE, "Classic"),
        (BOX, BOX, "MuJoCo"),
        (DISCRETE, BOX, "MuJoCo"),
    ],
)
def test_spaces_choose_a_preset(observation: Space, action: Space, preset: Preset) -> None:
    assert preset_of(observation, action) == preset


def context(tmp_path: Path, **spec: Any) -> Context:
    least = {"algorithm": {"ppo": {}}, "environment": {"id": "CartPole-v1"}, "stop": {"seconds": 1}}
    job = RLTrainingJob.model_validate({"metadata": {"name": "a"}, "spec": least | spec})
    nothing = dict.fromkeys(("token", "pod"), "x")
    return Context(job, tmp_path, **nothing, index=0, http_port=0, learners=(), replays=(), output=tmp_path)


def test_the_environment_or_the_user_chooses(tmp_path: Path) -> None:
    for spec, preset in (
        ({}, "Classic"),
        ({"environment": {"id": "Pendulum-v1"}}, "MuJoCo"),
        ({"preset": "Atari", "environment": {"id": "NotThere-v0"}}, "Atari"),
    ):
        before = context(tmp_path, **spec)
        after = resolve_defaults(before)
        assert after.job.spec.preset == preset
        assert after == dataclasses.replace(before, job=after.job), "nothing else changes"


def test_settings_that_do_not_go_with_a_preset_are_refused_in_a_sentence(tmp_path: Path) -> None:
    settings = {"algorithm": {"ppo": {"minibatches": 100_000}}}
    with pytest.raises(
        BadConfiguration, match=r"^with the defaults of preset Classic, spec: ppo.minibatches"
    ):
        resolve_defaults(context(tmp_path, **settings))
