"""Learners and collectors of the algorithms with a replay, and batches for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from rltraining_api.algorithms import Adam, DdpgApex, DqnApex, Optimizer, Sac, Td3
from rltraining_api.environment import Normalize
from rltraining_api.network import Mlp, Network
from rltraining_trainer.algorithms.ddpg import DdpgActor, DdpgLearner
from rltraining_trainer.algorithms.dqn import DqnActor, DqnLearner
from rltraining_trainer.algorithms.sac import SacActor, SacLearner
from rltraining_trainer.algorithms.sac import build_network as build_sac
from rltraining_trainer.algorithms.td3 import Td3Actor, Td3Learner
from rltraining_trainer.algorithms.td3 import build_network as build_td3
from rltraining_trainer.algorithms.transition_collector import TransitionCollector
from rltraining_trainer.algorithms.transitions import Transitions
from rltraining_trainer.environments import Stepper
from rltraining_trainer.networks import build_deterministic, build_q_network
from torch import Tensor

OBSERVATION = spaces.Box(-1, 1, (3,), np.float32)
NETWORK = Network(mlp=Mlp(hidden_sizes=(6, 5)))
ACTIONS = 4
DIMENSIONS = 2
B = 12
WEIGHTS = torch.linspace(0.2, 3.0, B, dtype=torch.float64)


def adam() -> Optimizer:
    return Optimizer(adam=Adam())


def dqn(**settings: Any) -> DqnLearner:
    torch.manual_seed(3)
    chosen = DqnApex(**{"optimizer": adam(), "learning_rate": 1e-2, **settings})
    network, _ = build_q_network(
        NETWORK,
        OBSERVATION,
        spaces.Discrete(ACTIONS),
        dueling=chosen.dueling,
        quantiles=chosen.quantiles,
        noisy=chosen.noisy_layers,
    )
    shake(network)
    return DqnLearner(network, chosen)


def ddpg(**settings: Any) -> DdpgLearner:
    torch.manual_seed(3)
    chosen = DdpgApex(**{"actor_learning_rate": 1e-2, "critic_learning_rate": 2e-2, **settings})
    network, _ = build_deterministic(NETWORK, OBSERVATION, spaces.Box(-2, 2, (DIMENSIONS,), np.float32))
    shake(network)
    return DdpgLearner(network, chosen)


def sac(**settings: Any) -> SacLearner:
    torch.manual_seed(3)
    box = spaces.Box(-2, 2, (DIMENSIONS,), np.float32)
    network, actions = build_sac(NETWORK, OBSERVATION, box)
    shake(network)
    return SacLearner(network, actions, Sac(**settings))


def td3(**settings: Any) -> Td3Learner:
    torch.manual_seed(3)
    network, _ = build_td3(NETWORK, OBSERVATION, spaces.Box(-2, 2, (DIMENSIONS,), np.float32))
    shake(network)
    return Td3Learner(network, Td3(**settings))


def shake(network: torch.nn.Module) -> None:
    """Randomizes the parameters, so that outputs are not near zero."""
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)


AnyLearner = DqnLearner | DdpgLearner | SacLearner | Td3Learner


def batch_for(learner: AnyLearner, seed: int = 0, size: int = B) -> Transitions:
    random = torch.Generator().manual_seed(seed)
    action: Tensor = torch.randint(ACTIONS, (size,), generator=random)
    if not isinstance(learner, DqnLearner):
        action = 2 * torch.rand(size, DIMENSIONS, generator=random) - 1
    return Transitions(
        observation=torch.randn(size, 3, generator=random),
        action=action,
        reward=3 * torch.randn(size, generator=random),
        discount=0.9 * (torch.rand(size, generator=random) < 0.7),
        next_observation=torch.randn(size, 3, generator=random),
    )


def gradient_of(learner: AnyLearner, *args: Any) -> Tensor:
    """Returns the mean gradient that ``step`` passes to the optimizer, for a learner without clipping."""
    learner.step(*args)
    assert learner.parameters.grad is not None
    return learner.parameters.grad.clone()


def split(batch: Transitions, at: int) -> tuple[Transitions, Transitions]:
    first, second = (
        {name: column[part] for name, column in batch.items()} for part in (slice(at), slice(at, None))
    )  # type: ignore[attr-defined]
    return first, second  # type: ignore[return-value]


def collector_and_learner(
    settings: DqnApex | DdpgApex | Sac | Td3,
    environments: VectorEnv,
    length: int,
    normalize: Normalize | None = None,
) -> tuple[TransitionCollector, AnyLearner]:
    """Returns a collector and a learner of one network. The target network is a copy."""
    torch.manual_seed(3)
    spaces_of = environments.single_observation_space, environments.single_action_space
    actor: DqnActor | DdpgActor | SacActor | Td3Actor
    learner: AnyLearner
    if isinstance(settings, DqnApex):
        q_network, greedy = build_q_network(
            NETWORK, *spaces_of, dueling=True, noisy=settings.noisy_layers, normalize=normalize
        )
        actor, learner = DqnActor(q_network, greedy, settings), DqnLearner(q_network, settings)
    elif isinstance(settings, Sac):
        sac_network, squashed = build_sac(NETWORK, *spaces_of, normalize=normalize)
        actor, learner = SacActor(sac_network, squashed), SacLearner(sac_network, squashed, settings)
    elif isinstance(settings, Td3):
        td3_network, bounded = build_td3(NETWORK, *spaces_of, normalize=normalize)
        actor = Td3Actor(td3_network, bounded, settings.exploration_noise)
        learner = Td3Learner(td3_network, settings)
    else:
        network, actions = build_deterministic(NETWORK, *spaces_of, normalize=normalize)
        actor, learner = DdpgActor(network, actions, settings), DdpgLearner(network, settings)
    collector = TransitionCollector(
        actor,
        Stepper(environments, "Any"),
        length=length,
        n_step=settings.n_step,
        discount=settings.discount,
        reward_clip=None,
        reward_scale=1.0,
        seed=0,
        environments=range(environments.num_envs),
        total=environments.num_envs,
    )
    return collector, learner
