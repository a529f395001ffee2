"""PPO of tianshou on CartPole-v1 with the settings of its test (test/discrete/test_ppo_discrete.py)."""

from __future__ import annotations

import sys
from typing import Any

from score import ENVIRONMENT, Score

seed, limit = int(sys.argv[1]), float(sys.argv[2])
score = Score(limit)

import gymnasium  # noqa: E402  (start-up counts imports)
import numpy as np  # noqa: E402
import torch  # noqa: E402
from tianshou.algorithm import PPO  # noqa: E402
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy  # noqa: E402
from tianshou.algorithm.optim import AdamOptimizerFactory  # noqa: E402
from tianshou.data import Collector, VectorReplayBuffer  # noqa: E402
from tianshou.env import DummyVectorEnv  # noqa: E402
from tianshou.trainer import OnPolicyTrainerParams  # noqa: E402
from tianshou.utils.net.common import ActorCritic, Net  # noqa: E402
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic  # noqa: E402

ENVIRONMENTS = 20


class Over(Exception):
    """Ends the run. An environment raises this error, because the trainer checks only once per epoch."""


class Watched(gymnasium.Wrapper):
    steps = 0
    """Steps of all environments."""

    def reset(self, **options: Any) -> Any:
        self._return = 0.0
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        Watched.steps += 1
        self._return += reward
        if terminated or truncated:
            score.add(self._return)
        if score.over:
            raise Over
        return observation, reward, terminated, truncated, info


torch.set_num_threads(1)
np.random.seed(seed)
torch.manual_seed(seed)
environments = DummyVectorEnv([lambda: Watched(gymnasium.make(ENVIRONMENT)) for _ in range(ENVIRONMENTS)])
environments.seed(seed)
net = Net(state_shape=(4,), hidden_sizes=[64, 64])
actor, critic = DiscreteActor(preprocess_net=net, action_shape=2), DiscreteCritic(preprocess_net=net)
for module in ActorCritic(actor, critic).modules():
    if isinstance(module, torch.nn.Linear):
        torch.nn.init.orthogonal_(module.weight)
        torch.nn.init.zeros_(module.bias)
policy = DiscreteActorPolicy(
    actor=actor, dist_fn=torch.distributions.Categorical, action_space=gymnasium.spaces.Discrete(2)
)
algorithm = PPO(
    policy=policy,
    critic=critic,
    optim=AdamOptimizerFactory(lr=3e-4),
    gamma=0.99,
    max_grad_norm=0.5,
    eps_clip=0.2,
    vf_coef=0.5,
    ent_coef=0.0,
    gae_lambda=0.95,
    advantage_normalization=False,
)
collector = Collector(algorithm, environments, VectorReplayBuffer(20_000, ENVIRONMENTS))
score.begin()
try:
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1000,
            epoch_num_steps=50_000,
            collection_step_num_env_steps=2_000,
            update_step_num_repetitions=10,
            batch_size=64,
            show_progress=False,
            verbose=False,
        )
    )
except Over:
    score.report(Watched.steps)
