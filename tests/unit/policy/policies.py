"""Jobs and networks for the tests' policies."""

from __future__ import annotations

import gymnasium as gym
import torch
from gymnasium import spaces
from rltraining_api.job import RLTrainingJob
from rltraining_api.status import Progress
from rltraining_trainer.algorithms import r2d2, sac, td3
from rltraining_trainer.environments import make_environments
from rltraining_trainer.networks import (
    PolicyNetwork,
    build_actor_critic,
    build_deterministic,
    build_q_network,
)
from torch import nn

PROGRESS = Progress(environment_steps=1000, episodes=20, updates=5, mean_return=21.5)

MLP = {"mlp": {"hiddenSizes": [16]}}
LSTM = {"mlp": {"hiddenSizes": [16]}, "lstm": {"hiddenSize": 8}}
JOBS: dict[str, tuple[dict, dict] | tuple[dict, dict, dict]] = {
    "discrete": ({"id": "CartPole-v1"}, MLP),
    "discrete-lstm": ({"id": "CartPole-v1"}, LSTM),
    "continuous": ({"id": "Pendulum-v1"}, MLP),
    "continuous-lstm": ({"id": "MountainCarContinuous-v0"}, LSTM),
    "image": ({"id": f"{__name__}:Image-v0"}, {"impalaCnn": {"channels": [4], "hiddenSize": 8}}),
    "discrete-observation": ({"id": f"{__name__}:Image-v0", "kwargs": {"kind": "discrete"}}, MLP),
    "blind": ({"id": f"{__name__}:Blind-v0"}, MLP),
    "user-code": ({"id": "CartPole-v1"}, {"entryPoint": f"{__name__}:torso"}),
    "q": ({"id": "CartPole-v1"}, MLP, {"dqnApex": {"dueling": False}}),
    "q-dueling": (
        {"id": f"{__name__}:Image-v0"},
        {"impalaCnn": {"channels": [4], "hiddenSize": 8}},
        {"dqnApex": {}},
    ),
    "q-quantiles": ({"id": "CartPole-v1"}, MLP, {"dqnApex": {"quantiles": 5}}),
    "q-noisy": ({"id": "CartPole-v1"}, MLP, {"dqnApex": {"noisyLayers": True}}),
    "q-user-code": ({"id": "CartPole-v1"}, {"entryPoint": f"{__name__}:torso"}, {"dqnApex": {}}),
    "deterministic": ({"id": "Pendulum-v1"}, MLP, {"ddpgApex": {}}),
    "soft": ({"id": "Pendulum-v1"}, MLP, {"sac": {}}),
    "q-lstm": ({"id": "CartPole-v1"}, LSTM, {"r2d2": {}}),
    "twin": ({"id": "Pendulum-v1"}, MLP, {"td3": {}}),
}
"""Environment, network and, unless it is IMPALA, algorithm."""


def job(name: str) -> RLTrainingJob:
    environment, network, *algorithm = JOBS[name]
    return RLTrainingJob.model_validate(
        {
            "metadata": {"name": name},
            "spec": {
                "algorithm": algorithm[0] if algorithm else {"impala": {}},
                "environment": environment,
                "network": network,
                "stop": {"environmentSteps": 1000},
            },
        }
    )


def trained(name: str) -> tuple[PolicyNetwork, RLTrainingJob, tuple[spaces.Space, spaces.Space]]:
    """Returns a network of the job with random weights in every head, and the inputs of ``export_policy``."""
    manifest = job(name)
    environments = make_environments(manifest.spec.environment, 1)
    found = environments.single_observation_space, environments.single_action_space
    environments.close()
    network = build(manifest, *found)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network, manifest, found


def build(manifest: RLTrainingJob, *found: spaces.Space) -> PolicyNetwork:
    algorithm, network = manifest.spec.algorithm, manifest.spec.network
    if algorithm.dqn_apex is not None:
        settings = algorithm.dqn_apex
        return build_q_network(
            network,
            *found,
            dueling=settings.dueling,
            quantiles=settings.quantiles,
            noisy=settings.noisy_layers,
        )[0]
    if algorithm.ddpg_apex is not None:
        return build_deterministic(network, *found)[0]
    if algorithm.r2d2 is not None:
        return r2d2.build_network(network, *found)[0]
    if algorithm.sac is not None:
        return sac.build_network(network, *found)[0]
    if algorithm.td3 is not None:
        return td3.build_network(network, *found)[0]
    return build_actor_critic(network, *found)[0]


def torso(space: spaces.Space) -> nn.Module:
    """A user's network."""
    return nn.Sequential(nn.Linear(space.shape[0], 8), nn.Dropout(0.5), nn.GELU())


class Branching(nn.Module):
    """A user's network that no tracer can follow."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return observation if observation.sum() > 0 else -observation


def branching_torso(space: spaces.Space) -> nn.Module:
    return Branching()


class FixedBatch(nn.Module):
    """A user's network in which tracing makes the batch size a constant."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return observation.reshape(len(observation), -1)


def fixed_batch_torso(space: spaces.Space) -> nn.Module:
    return FixedBatch()


class ImageEnv(gym.Env):
    """Episodes of eight steps of noise, without pictures; actions start at 3."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - gymnasium's own way
    render_mode: str | None = None

    def __init__(self, kind: str = "image", render_mode: str | None = None) -> None:
        image = spaces.Box(0, 255, (12, 12, 3), "uint8")
        self.observation_space = image if kind == "image" else spaces.Discrete(5, start=2)
        self.action_space = spaces.Discrete(4, start=3)
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self._time = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._time += 1
        return self.observation_space.sample(), 1.0, self._time == 8, False, {}

    def render(self):
        return None


class BlindEnv(gym.Env):
    """Declares no render modes, and does not accept one."""

    def __init__(self) -> None:
        self.observation_space = self.action_space = spaces.Discrete(2)


gym.register("Image-v0", ImageEnv)
gym.register("Blind-v0", BlindEnv)
