"""Builds the networks of ``spec.network`` for an environment's spaces."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeGuard

import numpy as np
from gymnasium import spaces
from rltraining_api.environment import Normalize
from rltraining_api.network import Gaussian, Network
from torch import nn

from rltraining_trainer.environments.nested_spaces import discrete_choices, items_of, shown
from rltraining_trainer.environments.packed_space import PackedSpace
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks.actions import DeterministicActions, GreedyActions
from rltraining_trainer.networks.actor_critic import ActorCritic
from rltraining_trainer.networks.build_torso import build_flattener, build_torso, is_known
from rltraining_trainer.networks.critics import Critic, TwinCritics
from rltraining_trainer.networks.deterministic import DeterministicActorCritic
from rltraining_trainer.networks.distributions import (
    Categorical,
    DiagonalGaussian,
    Distribution,
    SquashedGaussian,
)
from rltraining_trainer.networks.factored import Factored
from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.q_network import QNetwork
from rltraining_trainer.networks.torsos import ACTIVATIONS, Mlp
from rltraining_trainer.networks.unpack import ActionMask

NetworkBuilder = Callable[..., tuple[Any, Any]]
"""Builds a network for spaces, and the conversion of its outputs to actions."""


def build_actor_critic(
    network: Network,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    *,
    normalize: Normalize | None = None,
) -> tuple[ActorCritic, Distribution]:
    """Returns the actor-critic network for these spaces and the distribution of its actions.

    Args:
        network: ``spec.network``.
        observation_space: Space of one observation, packed if it is composite.
        action_space: Space of one action.
        normalize: ``spec.environment.normalize``. None: no normalisation.

    Raises:
        BadConfiguration: The network does not fit the observations, or a space is not supported.
        UserCodeError: ``network.entryPoint`` cannot be imported, or raised.
    """
    gaussian = network.gaussian or Gaussian()
    distribution = _distribution(action_space, gaussian)
    # Build the torsos and the heads.
    normalizer = build_normalizer(normalize, observation_space)
    torso, features = build_torso(network, observation_space, normalizer)
    separate = _has_value_network(network)
    actor_critic = ActorCritic(
        torso,
        features,
        distribution.parameter_size,
        gaussians=distribution.gaussians,
        lstm_size=network.lstm.hidden_size if network.lstm else 0,
        initial_log_std=_initial_log_std(gaussian),
        value_torso=build_torso(network, observation_space, normalizer)[0] if separate else None,
        normalizer=normalizer,
        mask=build_mask(observation_space, sum(discrete_choices(action_space))),
    )
    return actor_critic, distribution


def build_q_network(
    network: Network,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    *,
    dueling: bool,
    quantiles: int = 1,
    noisy: bool = False,
    normalize: Normalize | None = None,
) -> tuple[QNetwork, GreedyActions]:
    """Returns the network of dqnApex for these spaces and the conversion of its values to actions.

    Raises like ``build_actor_critic``.
    """
    discrete = check_discrete("dqnApex", action_space, normalize)
    count = int(discrete.n)
    _check_not_recurrent(network, "dqnApex")
    # Build the torso and the heads.
    normalizer = build_normalizer(normalize, observation_space)
    torso, features = build_torso(network, observation_space, normalizer)
    mask = build_mask(observation_space, count)
    q_network = QNetwork(
        torso,
        features,
        count,
        dueling=dueling,
        quantiles=quantiles,
        noisy=noisy,
        normalizer=normalizer,
        mask=mask,
    )
    return q_network, GreedyActions(discrete)


def build_deterministic(
    network: Network,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    *,
    normalize: Normalize | None = None,
) -> tuple[DeterministicActorCritic, DeterministicActions]:
    """Returns the actor and critic of ddpgApex, and the conversion of the actor's output to
    actions.

    Raises like ``build_actor_critic``.
    """
    box = check_continuous("ddpgApex", network, action_space, normalize)
    normalizer = build_normalizer(normalize, observation_space)
    actor_torso, actor_features = build_torso(network, observation_space, normalizer)
    dimensions = math.prod(box.shape)
    critic_torso, critic_body, critic_features = build_critic(
        network, observation_space, dimensions, normalizer
    )
    actor_critic = DeterministicActorCritic(
        actor_torso,
        actor_features,
        dimensions,
        critic_torso,
        critic_body,
        critic_features,
        normalizer=normalizer,
    )
    return actor_critic, DeterministicActions(box)


def check_discrete(
    algorithm: str, action_space: spaces.Space, normalize: Normalize | None
) -> spaces.Discrete:
    """Returns the action space of an algorithm that learns values of discrete actions from a replay.

    Raises BadConfiguration unless the actions are Discrete and rewards are not normalised.
    """
    _distribution(action_space)  # rejects actions that no algorithm supports
    if not isinstance(action_space, spaces.Discrete):
        raise BadConfiguration(
            f"spec.algorithm.{algorithm}: it needs Discrete actions, but the environment's actions are "
            f"{shown(action_space)}; use {_instead(action_space)}"
        )
    _check_rewards_are_raw(normalize, algorithm)
    return action_space


def check_continuous(
    algorithm: str, network: Network, action_space: spaces.Space, normalize: Normalize | None
) -> spaces.Box:
    """Returns the action space of an algorithm that learns bounded continuous actions from a replay.

    Raises BadConfiguration unless the actions are in a bounded Box of floats, the network is not recurrent and rewards are
    not normalised.
    """
    _distribution(action_space)  # rejects actions that no algorithm supports
    if not isinstance(action_space, spaces.Box):
        raise BadConfiguration(
            f"spec.algorithm.{algorithm}: it needs actions in a Box of floats, but the environment's actions are "
            f"{shown(action_space)}; use {_instead(action_space)}"
        )
    if not _is_bounded_box(action_space):
        raise BadConfiguration(
            f"spec.algorithm.{algorithm}: it needs actions with bounds, but the environment's actions are "
            f"{shown(action_space)}; give its action space finite bounds, or use ppo or impala"
        )
    _check_not_recurrent(network, algorithm)
    _check_rewards_are_raw(normalize, algorithm)
    return action_space


def build_critic(
    network: Network, observation_space: spaces.Space, dimensions: int, normalizer: Normalizer | None
) -> tuple[nn.Module, nn.Module, int]:
    """Returns the layers of a critic Q(s, a).

    With ``network.mlp`` its layers receive the observation and the action together. With other networks they receive the
    torso's features and the action.

    Returns:
        The torso, which maps observations to features ``[N, F]``. The body, which maps these features and the actions
        ``[N, F + dimensions]`` to the last features. The number of the last features.
    """
    if network.mlp is not None:
        hidden_sizes, activation = network.mlp.hidden_sizes, ACTIVATIONS[network.mlp.activation]
        torso, features = build_flattener(network, observation_space, normalizer)
    else:
        torso, features = build_torso(network, observation_space, normalizer)
        hidden_sizes, activation = (features,), nn.ReLU
    return torso, Mlp((features + dimensions,), hidden_sizes, activation), hidden_sizes[-1]


def build_twin_critics(
    network: Network, observation_space: spaces.Space, dimensions: int, normalizer: Normalizer | None
) -> TwinCritics:
    """Returns two critics of actions with ``dimensions`` numbers, as `build_critic` describes them."""
    layers = (build_critic(network, observation_space, dimensions, normalizer) for _ in range(2))
    return TwinCritics([Critic(*parts) for parts in layers])


def _instead(action_space: spaces.Space) -> str:
    """Lists the algorithms that support these actions, for messages."""
    by_space: dict[type[spaces.Space], str] = {spaces.Discrete: "dqnApex, r2d2, "}
    if _is_bounded_box(action_space):
        by_space[spaces.Box] = "sac, td3, "
    return f"{by_space.get(type(action_space), 'a2c, a3c, ')}ppo or impala"


def _is_bounded_box(space: spaces.Space) -> bool:
    return isinstance(space, spaces.Box) and bool(
        np.isfinite(space.high.astype(np.float64) - space.low).all()
    )


def _check_not_recurrent(network: Network, algorithm: str) -> None:
    if network.lstm is not None:
        raise BadConfiguration(
            f"spec.network.lstm: {algorithm} learns from single transitions, which have no recurrent state; "
            "leave lstm out, or use ppo, a3c, a2c or impala"
        )


def _check_rewards_are_raw(normalize: Normalize | None, algorithm: str) -> None:
    if normalize is not None and normalize.rewards:
        raise BadConfiguration(
            f"spec.environment.normalize.rewards: {algorithm} would mix rewards of different scales in its replay; "
            "leave it out, and set rewardScale or rewardClip of the algorithm instead"
        )


def build_normalizer(normalize: Normalize | None, space: spaces.Space) -> Normalizer | None:
    """Returns the running statistics of ``spec.environment.normalize``, or None if there are none.

    Images and discrete observations have no statistics, since they are scaled by their type.
    """
    if normalize is None:
        return None
    shape: tuple[int, ...] | None = None
    if isinstance(space, PackedSpace):
        shape = (space.vector_size,) if space.vector_size else None
    elif isinstance(space, spaces.Box) and not (space.dtype == np.uint8 and len(space.shape) > 1):
        shape = space.shape
    if not normalize.observations:
        shape = None
    if shape is None and not normalize.rewards:
        return None
    packed = space if isinstance(space, PackedSpace) and shape is not None else None
    return Normalizer(shape, rewards=normalize.rewards, packed=packed)


def _has_value_network(network: Network) -> bool:
    """Returns whether the value has a separate network."""
    if network.value_network == "Separate" and network.lstm is not None:
        raise BadConfiguration(
            "spec.network.valueNetwork: with an LSTM, policy and value share the network; set Shared, or leave lstm out"
        )
    return network.has_separate_value


def _distribution(space: spaces.Space, gaussian: Gaussian | None = None) -> Distribution:
    """Returns the distribution of actions. Raises BadConfiguration for unsupported spaces."""
    if isinstance(space, spaces.Discrete):
        return Categorical(space)
    if _is_box(space):
        return _gaussian(space, gaussian or Gaussian())
    if not isinstance(space, spaces.Box) and _is_factored(space):
        return Factored(space, partial(_gaussian, settings=gaussian or Gaussian()))
    raise BadConfiguration(
        f"spec.environment: actions of {shown(space)} are not supported; use Discrete, MultiDiscrete, "
        "MultiBinary, a Box of floats, or a Dict or Tuple of these, or wrap the environment "
        "(environment.wrappers)"
    )


def _gaussian(space: spaces.Box, settings: Gaussian) -> DiagonalGaussian:
    bounds = settings.min_log_std, settings.max_log_std
    if settings.squash == "Clip":
        return DiagonalGaussian(space, bounds)
    if not np.isfinite(space.high.astype(np.float64) - space.low).all():
        raise BadConfiguration(
            f"spec.network.gaussian.squash: Tanh needs actions with bounds, but the environment's actions are "
            f"{shown(space)}; leave it out, or give its action space finite bounds"
        )
    return SquashedGaussian(space, bounds)


def _initial_log_std(settings: Gaussian) -> float:
    """Returns the initial log standard deviation, within its bounds."""
    low, high = settings.min_log_std, settings.max_log_std
    initial = settings.initial_log_std if low is None else max(low, settings.initial_log_std)
    return initial if high is None else min(high, initial)


def _is_factored(space: spaces.Space) -> bool:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = [part for _, part in items_of(space)]
        return bool(parts) and all(map(_is_factored, parts))
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary) or _is_box(space)


def _is_box(space: spaces.Space) -> TypeGuard[spaces.Box]:
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and is_known(space)


def build_mask(space: spaces.Space, logits: int) -> ActionMask | None:
    """Returns the module that masks invalid actions, or None if observations have no mask."""
    has_mask = isinstance(space, PackedSpace) and space.mask is not None
    return ActionMask(space, logits) if has_mask else None  # type: ignore[arg-type]
