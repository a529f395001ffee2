"""Networks and rollouts for algorithms with samplers that send gradients."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.algorithms import A2c, A3c, Ppo
from rltraining_api.network import Lstm, Mlp, Network
from rltraining_trainer.algorithms.a3c import AdvantageActorCritic
from rltraining_trainer.algorithms.ppo import ProximalPolicyOptimization
from rltraining_trainer.algorithms.rollout_learner import RolloutLearner
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.dataflow import NO_MOMENTS
from rltraining_trainer.dataflow.flat import flatten_parameters
from rltraining_trainer.networks import ActorCritic, Distribution, build_actor_critic
from torch import Tensor

DISCRETE = spaces.Discrete(3)
CONTINUOUS = spaces.Box(-1, 1, (2,), np.float32)
T = 7
Made = tuple[ActorCritic, Distribution]
every_network = pytest.mark.parametrize(
    ("action", "lstm"),
    [(DISCRETE, False), (DISCRETE, True), (CONTINUOUS, True)],
    ids=["mlp", "lstm", "gaussian lstm"],
)


def make_network(action: spaces.Space = DISCRETE, *, lstm: bool = False, seed: int = 3) -> Made:
    """A small network, away from the nearly uniform policy, and its distribution."""
    spec = Network(mlp=Mlp(hidden_sizes=(5,)), lstm=Lstm(hidden_size=4) if lstm else None)
    network, distribution = build_actor_critic(spec, spaces.Box(-1, 1, (3,), np.float32), action)
    random = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=random)
    return network, distribution


def make_unroll(
    network: ActorCritic, distribution: Distribution, seed: int = 0, batch: int = 4, drift: float = 0.3
) -> Unroll:
    """Returns steps with all events: ends, resets, beginnings, and a recurrent state.

    The policy differs from the network's by about ``drift`` in each parameter.
    """
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    def some(share: float, rows: int) -> Tensor:
        return torch.rand(rows, batch, generator=random) < share

    observation, first = normal(T + 1, batch, 3), some(0.2, T + 1)
    state = tuple(normal(*part.shape) for part in network.initial_state(batch))
    with torch.no_grad():
        policies, _ = network.unroll(observation, state, first)
    policies = policies[:-1] + drift * normal(T, batch, distribution.parameter_size)
    action = distribution.sample(policies, normal(T, batch, distribution.noise(1)[0].numel()))
    return Unroll(
        observation=observation,
        action=action,
        log_prob=distribution.log_prob(policies, action),
        reward=3 * normal(T, batch),
        ended=some(0.2, T),
        valid=~some(0.2, T),
        first=first,
        state=state,
        moments=NO_MOMENTS,
        episodes=torch.ones(batch, dtype=torch.int64),
        episode_return=normal(3),
        episode_length=torch.arange(3),
    )


def kind_of(settings: A3c | A2c | Ppo) -> type[AdvantageActorCritic] | type[ProximalPolicyOptimization]:
    """Returns the class that makes the gradients of a rollout."""
    return ProximalPolicyOptimization if isinstance(settings, Ppo) else AdvantageActorCritic


def rollout_learner(
    settings: A2c | Ppo, made: Made | None = None, exchanges: Callable[[int], int] | None = None
) -> RolloutLearner:
    """Returns a learner of rollouts with this network, or one of ``make_network``."""
    return RolloutLearner(*(made or make_network()), settings, kind_of(settings), None, exchanges=exchanges)


def gradients_of(
    settings: A3c | A2c | Ppo, made: Made
) -> tuple[AdvantageActorCritic | ProximalPolicyOptimization, Tensor]:
    """A sampler's rollout gradients, and its parameters."""
    parameters = flatten_parameters(made[0])
    return kind_of(settings)(*made, settings, parameters), parameters


def begun(
    settings: A3c | A2c | Ppo, made: Made, unroll: Unroll
) -> AdvantageActorCritic | ProximalPolicyOptimization:
    """Begins a rollout in a sampler that is the only one, with a copy of the network."""
    rollouts, _ = gradients_of(settings, (copy.deepcopy(made[0]), made[1]))
    totals = rollouts.begin(unroll)
    apart = getattr(settings, "advantage_normalization_per", "Rollout") == "Minibatch"
    assert (totals is not None) == (settings.advantage_normalization and not apart)
    if totals is not None:
        rollouts.share(totals)
    return rollouts


def with_other_invalid_rows(unroll: Unroll) -> Unroll:
    """Returns the same steps with other contents in rows that are no steps."""
    other, invalid = copy.deepcopy(unroll), ~unroll["valid"]
    other["reward"][invalid] = other["log_prob"][invalid] = math.nan
    other["action"][invalid] = 0
    other["ended"][invalid] ^= True
    return other


def environments_of(unroll: Unroll, environments: slice) -> Unroll:
    """Returns the part of an unroll for some environments."""
    columns: dict[str, Any] = {
        name: column[:, environments].clone()
        for name, column in unroll.items()
        if isinstance(column, Tensor) and column.dim() > 1 and name != "moments"
    }
    state = tuple(part[environments] for part in unroll["state"])
    episodes = {name: unroll[name] for name in ("moments", "episodes", "episode_return", "episode_length")}  # type: ignore[literal-required]
    return Unroll(**columns, **episodes, state=state)


def in_double(network: ActorCritic, unroll: Unroll) -> tuple[ActorCritic, Unroll]:
    """Returns both in float64, for a second calculation."""
    columns: dict[str, Any] = {
        name: column.double() if column.is_floating_point() else column
        for name, column in unroll.items()
        if isinstance(column, Tensor)
    }
    return network.double(), Unroll(**columns, state=tuple(part.double() for part in unroll["state"]))


def advantages_step_by_step(unroll: Unroll, values: Tensor, discount: float, lambda_: float) -> Tensor:
    """Computes generalised advantages ``[T, B]`` from the formula, one number at a time."""
    found = torch.zeros_like(values)
    for b in range(values.shape[1]):
        for t in reversed(range(len(values) - 1)):
            if not unroll["valid"][t, b]:
                continue
            active = 0.0 if unroll["ended"][t, b] else discount
            delta = unroll["reward"][t, b] + active * values[t + 1, b] - values[t, b]
            found[t, b] = delta + active * lambda_ * found[t + 1, b]
    return found[:-1]


def standardized(values: Tensor, valid: Tensor) -> Tensor:
    known = values[valid]
    return (values - known.mean()) / known.std()


def flat_gradient(network: ActorCritic, loss: Tensor) -> Tensor:
    gradients = torch.autograd.grad(loss, tuple(network.parameters()))
    return torch.cat([part.reshape(-1) for part in gradients])
