"""Policies for observations and actions of several parts, and for masks: export, loading and acting."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from policies import PROGRESS
from rltraining_api.job import RLTrainingJob
from rltraining_trainer.environments import make_environments
from rltraining_trainer.environments.pack_space import pack_space
from rltraining_trainer.networks import build_actor_critic
from rltraining_trainer.policy import Policy, evaluate, export_policy
from rltraining_trainer.policy.description import describe

OBSERVATIONS = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (5, 5, 3), np.uint8),
        "pose": spaces.Tuple([spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)]),
    }
)
FACTORS = spaces.Dict(
    {"arm": spaces.Box(-1, 1, (2,), np.float32), "tool": spaces.MultiDiscrete([2, 3], start=[0, 4])}
)
CASES = {
    "parts": (OBSERVATIONS, FACTORS, False),
    "mask": (OBSERVATIONS, spaces.Discrete(4), True),
    "vector and mask": (spaces.Box(-1, 1, (3,), np.float32), spaces.MultiDiscrete([2, 2]), True),
}


class Parts(gym.Env):
    """Random observations; where there is a mask, only the last choice of each factor is valid."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, case: str) -> None:
        self.observation_space, self.action_space, self.masks = CASES[case]
        self.render_mode = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self.observation_space.sample(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        valid = not self.masks or np.all(np.ravel(action) == (1 if np.ndim(action) else 3))
        return self.observation_space.sample(), float(valid), False, False, self._info()

    def _info(self) -> dict:
        if not self.masks:
            return {}
        is_discrete = isinstance(self.action_space, spaces.Discrete)
        return {"action_mask": np.array([0, 0, 0, 1] if is_discrete else [0, 1, 0, 1], np.int8)}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[str]:
    gym.register("Parts-v0", entry_point=Parts, max_episode_steps=6)
    yield request.param
    del gym.registry["Parts-v0"]


def saved(case: str, directory: Path) -> Policy:
    job = RLTrainingJob.model_validate(
        {
            "metadata": {"name": "parts"},
            "spec": {
                "algorithm": {"impala": {}},
                "environment": {"id": "Parts-v0", "kwargs": {"case": case}},
                "network": {"mlp": {"hiddenSizes": [8]}, "lstm": {"hiddenSize": 4}},
                "stop": {"environmentSteps": 1000},
            },
        }
    )
    environments = make_environments(job.spec.environment, 1)
    found = environments.single_observation_space, environments.single_action_space
    environments.close()
    network, _ = build_actor_critic(job.spec.network, *found)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter))
    export_policy(directory, network, job, found, PROGRESS)
    return Policy.load(str(directory))


def test_a_policy_is_loaded_acts_and_is_evaluated(case: str, tmp_path: Path) -> None:
    policy = saved(case, tmp_path / "policy")
    observations, actions, masks = CASES[case]
    assert policy.observation_space == observations
    mask = Parts(case)._info().get("action_mask")
    action = policy.act(observations.sample(), action_mask=mask)
    assert actions.contains(action), action
    policy.reset()
    if masks:
        with pytest.raises(ValueError, match="this policy needs action_mask"):
            policy.act(observations.sample())
        for deterministic in (True, False):
            result = evaluate(policy, 5, num_envs=2, deterministic=deterministic)
            assert result.returns.tolist() == [6.0] * 5, "only valid actions, in all steps"
    else:
        evaluate(policy, 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_program_takes_and_gives_one_tensor_for_each_part(case: str, tmp_path: Path) -> None:
    policy = saved(case, tmp_path / "policy")
    described = policy.description.program
    assert described is not None
    program = torch.jit.load(io.BytesIO((tmp_path / "policy" / "policy.ts").read_bytes()))
    names = [tensor.name for tensor in described.inputs]
    expected = {
        "parts": ["observation.image", "observation.pose.0", "observation.pose.1"],
        "mask": ["observation.image", "observation.pose.0", "observation.pose.1", "action_mask"],
        "vector and mask": ["observation", "action_mask"],
    }[case]
    assert names == [*expected, "state_0", "state_1"]
    outputs = [tensor.name for tensor in described.outputs]
    assert outputs[:-3] == (["action.arm", "action.tool"] if case == "parts" else ["action"])
    inputs = [
        torch.zeros([2, *tensor.shape[1:]], dtype=getattr(torch, tensor.dtype)) for tensor in described.inputs
    ]
    mask = Parts(case)._info().get("action_mask")
    if mask is not None:
        inputs[names.index("action_mask")] = torch.tensor(np.stack([mask, mask]))
    action = program(*inputs)[0]
    if case == "mask":
        assert action.tolist() == [3, 3]
    if case == "vector and mask":
        assert action.tolist() == [[1, 1], [1, 1]]


NEEDED = {
    "camera": np.zeros((5, 5, 3), np.uint8),
    "target": np.zeros(2, np.float32),
    "action_mask": np.ones(4, np.int8),
}


def policy_of(space: spaces.Space, actions: spaces.Space, *, mask_in_info: bool) -> Policy:
    """A policy with random weights."""
    spec = {
        "algorithm": {"impala": {}},
        "environment": {"id": "Parts-v0"},
        "network": {"mlp": {"hiddenSizes": [8]}},
        "stop": {"environmentSteps": 1000},
    }
    job = RLTrainingJob.model_validate({"metadata": {"name": "parts"}, "spec": spec})
    packed, _ = pack_space(space, actions, mask_in_info=mask_in_info)
    network, _ = build_actor_critic(job.spec.network, packed, actions)
    return Policy(describe(job, packed, actions, PROGRESS), network.state_dict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": None}, "no part 'target'"),
        (
            {"target": np.zeros(3)},
            r"the part 'target' of shape \(3,\), but the policy needs \(2,\), or \[B, 2\]",
        ),
        ({"target": np.zeros((1, 2))}, r"the part 'target' of shape \(1, 2\)"),
        ({"camera": np.zeros((5, 5, 3))}, "the part 'camera' of float64, .* trained with uint8"),
        ({"action_mask": np.ones(3)}, r"the part 'action_mask' of shape \(3,\), .* needs \(4,\)"),
        ({"action_mask": np.zeros(4)}, "the part 'action_mask' in which no action is valid; for an"),
    ],
)
def test_parts_that_the_policy_was_not_trained_with_are_refused(change: dict[str, Any], message: str) -> None:
    space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (5, 5, 3), np.uint8),
            "target": spaces.Box(-1, 1, (2,), np.float32),
            "action_mask": spaces.MultiBinary(4),
        }
    )
    policy = policy_of(space, spaces.Discrete(4), mask_in_info=False)
    assert policy.act(NEEDED) in range(4)
    given = {key: value for key, value in {**NEEDED, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=f"^act was given {message}"):
        policy.act(given)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones((2, 3)), r"an action_mask of shape \(2, 3\), but the policy needs \(4,\), or \[B, 4\]"),
        (np.ones((3, 4)), r"an action_mask of shape \(3, 4\), .* \(2, 4\), as many rows as the other parts"),
        (np.ones(1), r"an action_mask of shape \(1,\)"),
        (np.zeros((2, 4)), "an action_mask in which factor 0 has no valid choice in row 0"),
        ([[1, 1, 1, 0], [1, 1, 0, 0]], "an action_mask in which factor 1 has no valid choice in row 1"),
    ],
)
def test_a_mask_of_infos_that_cannot_be_used_is_refused(mask: Any, message: str) -> None:
    policy = policy_of(spaces.Box(-1, 1, (3,), np.float32), spaces.MultiDiscrete([2, 2]), mask_in_info=True)
    observations = np.zeros((2, 3), np.float32)
    assert policy.act(observations, action_mask=[[0, 0.5, 1, 0]] * 2).tolist() == [[1, 0]] * 2
    with pytest.raises(ValueError, match=f"^act was given {message}"):
        policy.act(observations, action_mask=mask)
