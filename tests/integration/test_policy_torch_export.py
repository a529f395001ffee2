"""Policies as torch.export programs. Not a unit test only because importing torch's compiler takes seconds."""

from __future__ import annotations

import io
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.job import RLTrainingJob
from rltraining_api.status import Progress
from rltraining_trainer.networks import build_actor_critic
from rltraining_trainer.policy import Policy, ProgramError, to_exported_program
from rltraining_trainer.policy.description import describe


def make_policy(environment_id: str, network: dict) -> Policy:
    job = RLTrainingJob.model_validate(
        {
            "metadata": {"name": "exported"},
            "spec": {
                "algorithm": {"impala": {}},
                "environment": {"id": environment_id},
                "network": network,
                "stop": {"environmentSteps": 1000},
            },
        }
    )
    environment = gym.make(environment_id)
    found = environment.observation_space, environment.action_space
    environment.close()
    weights = build_actor_critic(job.spec.network, *found)[0].state_dict()
    return Policy(describe(job, *found, Progress()), weights)


@pytest.mark.parametrize(
    ("environment_id", "network"),
    [
        ("CartPole-v1", {"mlp": {}}),
        ("Pendulum-v1", {"mlp": {}, "lstm": {"hiddenSize": 8}}),
    ],
)
@pytest.mark.parametrize("batch", [1, 5])
def test_the_program_acts_as_the_policy(environment_id: str, network: dict, batch: int) -> None:
    policy = make_policy(environment_id, network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, on its way in
        program = torch.export.load(io.BytesIO(to_exported_program(policy))).module()
    state = policy.network.initial_state(batch)
    policy.observation_space.seed(5)
    for _ in range(2):
        observation = np.stack([policy.observation_space.sample() for _ in range(batch)])
        action, _, *state = program(torch.from_numpy(observation), *state)
        np.testing.assert_allclose(action.detach().numpy(), policy.act(observation), rtol=1e-4, atol=1e-5)


class _Branching(torch.nn.Module):
    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return observation if observation.sum() > 0 else -observation


def branching(space: spaces.Space) -> torch.nn.Module:
    """A user's network that cannot be a program."""
    return _Branching()


def test_a_network_that_branches_is_refused_in_a_sentence() -> None:
    policy = make_policy("CartPole-v1", {"entryPoint": f"{__name__}:branching"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(
            ProgramError, match=r"spec\.network\.entryPoint: cannot be made into torch\.export"
        ):
            to_exported_program(policy)
