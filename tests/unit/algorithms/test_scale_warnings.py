"""Observations and rewards of a large scale are reported with the setting that helps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rltraining_api.job import JobSpec
from rltraining_trainer.algorithms.scale_warnings import scale_warnings

OBSERVATIONS = (
    "observations of environment 'Mill-v0' reach 6,000, from which a network hardly learns: "
    "set spec.environment.normalize.observations to true, or scale them in the environment"
)


def warnings(
    algorithm: dict[str, Any],
    *,
    reward: float = 1.0,
    observation: torch.Tensor | None = None,
    **environment: Any,
) -> dict[str, str]:
    spec = JobSpec.model_validate(
        {"algorithm": algorithm, "environment": {"id": "Mill-v0", **environment}, "stop": {"seconds": 1}}
    )
    observation = torch.tensor([[0.5, -6000.0]]) if observation is None else observation
    batch = {"observation": observation, "reward": torch.tensor([0.0, reward])}
    return {
        warning.reason: warning.message for warning in scale_warnings(spec, spec.algorithm.parameters, batch)
    }


def test_large_observations_should_be_normalised() -> None:
    assert warnings({"td3": {}}) == {"LargeObservations": OBSERVATIONS}


@pytest.mark.parametrize(
    "changes",
    [
        {"normalize": {"observations": True}},
        {"observation": torch.full((1, 2), 100.0)},
        {"observation": torch.full((1, 4, 84, 84), 255, dtype=torch.uint8)},
    ],
    ids=["normalised", "not large", "an image"],
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
