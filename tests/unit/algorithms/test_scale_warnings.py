"""Observations and rewards of a large scale are reported with the setting that helps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from rltraining_api.job import JobSpec
from rltraining_trainer.algorithms.scale_warnings import scale_warnings
from rltraining_trainer.environments.pack_space import pack_space

OBSERVATIONS = (
    "observations of environment 'Mill-v0' reach 6,000, from which a network hardly learns: "
    "set spec.environment.normalize.observations to true, or scale them in the environment"
)


def warnings(
    algorithm: dict[str, Any],
    *,
    reward: float = 1.0,
    observation: torch.Tensor | None = None,
    space: Space | None = None,
    **environment: Any,
) -> dict[str, str]:
    spec = JobSpec.model_validate(
        {"algorithm": algorithm, "environment": {"id": "Mill-v0", **environment}, "stop": {"seconds": 1}}
    )
    observation = torch.tensor([[0.5, -6000.0]]) if observation is None else observation
    space = space or spaces.Box(-np.inf, np.inf, (2,), np.float32)
    batch = {"observation": observation, "reward": torch.tensor([0.0, reward])}
    return {
        warning.reason: warning.message
        for warning in scale_warnings(spec, space, spec.algorithm.parameters, batch)
    }


def test_large_observations_should_be_normalised() -> None:
    assert warnings({"td3": {}}) == {"LargeObservations": OBSERVATIONS}


@pytest.mark.parametrize(
    "changes",
    [
        {"normalize": {"observations": True}},
        {"observation": torch.full((1, 2), 100.0)},
        {
            "observation": torch.full((1, 4, 84, 84), 255, dtype=torch.uint8),
            "space": spaces.Box(0, 255, (4, 84, 84), np.uint8),
        },
        {
            "observation": torch.tensor([[6000, 0]]),
            "space": spaces.Box(0, 10_000, (2,), np.int64),
        },
    ],
    ids=["normalised", "not large", "an image", "scaled by the bounds"],
)
def test_no_warning_of_observations(changes: dict[str, Any]) -> None:
    assert warnings({"sac": {}}, **changes) == {}


@pytest.mark.parametrize(
    ("algorithm", "reward", "scale"),
    [
        ({"sac": {}}, -16_300.0, "spec.algorithm.sac.rewardScale to 0.001"),
        ({"dqnApex": {"rewardScale": 0.1}}, 2500.0, "spec.algorithm.dqnApex.rewardScale to 0.001"),
    ],
)
def test_large_rewards_should_be_scaled(algorithm: dict[str, Any], reward: float, scale: str) -> None:
    assert warnings(algorithm, reward=reward, observation=torch.zeros(1, 2)) == {
        "LargeRewards": f"rewards of environment 'Mill-v0' reach {abs(reward):,.0f}, from which a network hardly learns: "
        f"set {scale}, which changes no reported return"
    }


def test_r2d2_rescales_values_instead() -> None:
    assert warnings({"r2d2": {}}, reward=1e4, observation=torch.zeros(1, 2)) == {}


def test_integers_that_are_not_scaled_by_their_bounds_are_large() -> None:
    space = spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64)
    found = warnings({"dqnApex": {}}, observation=torch.tensor([[6000, 0]]), space=space)
    assert found == {"LargeObservations": OBSERVATIONS}


@pytest.mark.parametrize(
    "image", [{}, {"camera": spaces.Box(0, 255, (8, 8, 3), np.uint8)}], ids=["", "image"]
)
def test_only_vectors_among_the_parts_are_large(image: dict[str, Space]) -> None:
    """Indices are one-hot encoded, and integers scaled by their bounds."""
    parts = {"level": spaces.Discrete(7000), "gold": spaces.Box(0, 9000, (2,), np.int32)}
    space, _ = pack_space(
        spaces.Dict({"speed": spaces.Box(-np.inf, np.inf, (1,), np.float32), **parts, **image}),
        spaces.Discrete(2),
    )

    def found(speed: float) -> dict[str, str]:
        values: dict[str, object] = {"speed": [[speed]], "level": [6000], "gold": [[8000, 1]]}
        values |= {name: np.full((1, *box.shape), 255) for name, box in image.items()}
        row = torch.from_numpy(space.pack(values, 1))
        return warnings({"dqnApex": {}}, observation=row, space=space)

    assert found(3.0) == {}
    assert found(-6000.0) == {"LargeObservations": OBSERVATIONS}
