"""From ``spec.network`` and an environment's spaces to a network that fits them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from textwrap import shorten

import numpy as np
import torch
from gymnasium import spaces
from rltraining_api.environment import Normalize
from rltraining_api.network import Gaussian, Network
from torch import Tensor, nn

from rltraining_trainer.errors import BadConfiguration, UserCodeError, one_line, user_code, user_code_error
from rltraining_trainer.networks.actions import DeterministicActions, GreedyActions
from rltraining_trainer.networks.actor_critic import ActorCritic
from rltraining_trainer.networks.deterministic import DeterministicActorCritic
from rltraining_trainer.networks.distributions import (
    Categorical,
    DiagonalGaussian,
    Distribution,
    SquashedGaussian,
)
from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.q_network import QNetwork
from rltraining_trainer.networks.torsos import ACTIVATIONS, AsFloat, ImpalaCnn, Mlp, NatureCnn, OneHot, Pixels
from rltraining_trainer.networks.user_torso import UserTorso


def build_actor_critic(
    network: Network,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    *,
    normalize: Normalize | None = None,
) -> tuple[ActorCritic, Distribution]:
    """The actor-critic network of ``spec.network`` for these spaces, and the distribution of its actions.

    Args:
        normalize: ``spec.environment.normalize``; None: neither observations nor rewards.

    Raises:
        BadConfiguration: the network does not fit the observations, or a space is not supported.
        UserCodeError: ``network.entryPoint`` cannot be imported, or raised.
    """
    gaussian = network.gaussian or Gaussian()
    distribution = _distribution(action_space, gaussian)
    normalizer = _normalizer(normalize, observation_space)
    torso, features = _torso(network, observation_space, normalizer)
    separate = _has_value_network(network)
    actor_critic = ActorCritic(
        torso,
        features,
        distribution.parameter_size,
        gaussian=isinstance(distribution, DiagonalGaussian),
        lstm_size=network.lstm.hidden_size if network.lstm else 0,
        initial_log_std=gaussian.initial_log_std,
        value_torso=_torso(network, observation_space, normalizer)[0] if separate else None,
        normalizer=normalizer,
    )
    return actor_critic, distribution


def build_q_network(
    network: Network,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    *,
    dueling: bool,
    normalize: Normalize | None = None,
) -> tuple[QNetwork, GreedyActions]:
    """The network of dqnApex for these spaces, and how its values become actions. Raises as ``build_actor_critic``."""
    _distribution(action_space)  # which refuses what no algorithm takes
    if not isinstance(action_space, spaces.Discrete):
        raise BadConfiguration(
            "spec.algorithm.dqnApex: it needs Discrete actions, but those of the environment are "
            f"{_shown(action_space)}; use ddpgApex, ppo or impala"
        )
    _check_not_recurrent(network, "dqnApex")
    _check_rewards_are_raw(normalize, "dqnApex")
    normalizer = _normalizer(normalize, observation_space)
    torso, features = _torso(network, observation_space, normalizer)
    q_network = QNetwork(torso, features, int(action_space.n), dueling=dueling, normalizer=normalizer)
    return q_network, GreedyActions(action_space)


def build_deterministic(
    network: Network,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    *,
    normalize: Normalize | None = None,
) -> tuple[DeterministicActorCritic, DeterministicActions]:
    """The actor and critic of ddpgApex for these spaces, and how the actor's output becomes actions.

    With ``network.mlp`` the critic's layers take observation and action together; otherwise they take what the rest of the
    network makes of the observation, and the action. Raises as ``build_actor_critic``.
    """
    _distribution(action_space)  # which refuses what no algorithm takes
    if not isinstance(action_space, spaces.Box):
        raise BadConfiguration(
            "spec.algorithm.ddpgApex: it needs actions in a Box of floats, but those of the environment are "
            f"{_shown(action_space)}; use dqnApex, ppo or impala"
        )
    if not np.isfinite(action_space.high.astype(np.float64) - action_space.low).all():
        raise BadConfiguration(
            f"spec.algorithm.ddpgApex: it needs actions with bounds, but those of the environment are "
            f"{_shown(action_space)}; give its action space finite bounds, or use ppo or impala"
        )
    _check_not_recurrent(network, "ddpgApex")
    _check_rewards_are_raw(normalize, "ddpgApex")
    normalizer = _normalizer(normalize, observation_space)
    actor_torso, actor_features = _torso(network, observation_space, normalizer)
    if network.mlp is not None:
        hidden_sizes, activation = network.mlp.hidden_sizes, ACTIVATIONS[network.mlp.activation]
        critic_torso = _mlp(observation_space, (), activation, normalizer)  # which only flattens
        known = _features(critic_torso, observation_space, network)
    else:
        critic_torso, known = _torso(network, observation_space, normalizer)
        hidden_sizes, activation = (known,), nn.ReLU
    dimensions = math.prod(action_space.shape)
    critic_body = Mlp((known + dimensions,), hidden_sizes, activation)
    actor_critic = DeterministicActorCritic(
        actor_torso,
        actor_features,
        dimensions,
        critic_torso,
        critic_body,
        hidden_sizes[-1],
        normalizer=normalizer,
    )
    return actor_critic, DeterministicActions(action_space)


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


def _normalizer(normalize: Normalize | None, space: spaces.Space) -> Normalizer | None:
    """The running statistics that ``spec.environment.normalize`` asks for, or None if there are none to keep.

    Images and discrete observations are scaled by their type: they need no statistics.
    """
    if normalize is None:
        return None
    is_vector = isinstance(space, spaces.Box) and not (space.dtype == np.uint8 and len(space.shape) > 1)
    shape = space.shape if normalize.observations and is_vector else None
    if shape is None and not normalize.rewards:
        return None
    return Normalizer(shape, rewards=normalize.rewards)


def _has_value_network(network: Network) -> bool:
    """Whether the value has a network apart from the policy's."""
    if network.value_network == "Separate" and network.lstm is not None:
        raise BadConfiguration(
            "spec.network.valueNetwork: with an LSTM, policy and value share the network; set Shared, or leave lstm out"
        )
    if network.value_network is not None:
        return network.value_network == "Separate"
    return network.mlp is not None and network.lstm is None


def _distribution(space: spaces.Space, gaussian: Gaussian | None = None) -> Distribution:
    if isinstance(space, spaces.Discrete):
        return Categorical(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and _is_known(space):
        return _gaussian(space, gaussian or Gaussian())
    raise BadConfiguration(
        f"spec.environment: actions of {_shown(space)} are not supported; "
        "wrap the environment so that its action space is Discrete or a Box of floats"
    )


def _gaussian(space: spaces.Box, settings: Gaussian) -> DiagonalGaussian:
    bounds = settings.min_log_std, settings.max_log_std
    if settings.squash == "Clip":
        return DiagonalGaussian(space, bounds)
    if not np.isfinite(space.high.astype(np.float64) - space.low).all():
        raise BadConfiguration(
            f"spec.network.gaussian.squash: Tanh needs actions with bounds, but those of the environment are "
            f"{_shown(space)}; leave it out, or give its action space finite bounds"
        )
    return SquashedGaussian(space, bounds)


def _torso(network: Network, space: spaces.Space, normalizer: Normalizer | None) -> tuple[nn.Module, int]:
    """(observations to features, how many)."""
    if network.entry_point is not None:
        torso = _user_torso(network.entry_point, space)
        features = _features(torso, space, network)
        torso = UserTorso(torso, network.entry_point)
        if normalizer is not None and normalizer.shape is not None:
            torso = nn.Sequential(normalizer, torso)
        return torso, features
    if network.mlp is not None:
        torso = _mlp(space, network.mlp.hidden_sizes, ACTIVATIONS[network.mlp.activation], normalizer)
    else:
        torso = _cnn(network, space)
    return torso, _features(torso, space, network)


def _mlp(
    space: spaces.Space,
    hidden_sizes: Sequence[int],
    activation: type[nn.Module],
    normalizer: Normalizer | None,
) -> nn.Module:
    if isinstance(space, spaces.Discrete):
        n = int(space.n)
        return nn.Sequential(OneHot(n, int(space.start)), Mlp((n,), hidden_sizes, activation))
    if isinstance(space, spaces.Box):
        mlp = Mlp(space.shape, hidden_sizes, activation)
        if normalizer is not None and normalizer.shape is not None:
            return nn.Sequential(normalizer, mlp)
        return mlp if space.dtype == np.float32 else nn.Sequential(AsFloat(), mlp)
    raise BadConfiguration(
        f"spec.network.mlp: observations of {_shown(space)} are not supported; "
        "wrap the environment with gymnasium.wrappers.FlattenObservation"
    )


def _cnn(network: Network, space: spaces.Space) -> nn.Module:
    name = network.name
    if not (isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8):
        raise BadConfiguration(
            f"spec.network.{name}: it needs images, a uint8 Box [height, width, channels], but the observations are "
            f"{_shown(space)}; use network.mlp or network.entryPoint"
        )
    channels_last = space.shape[2] <= space.shape[0]
    channels, height, width = (space.shape[i] for i in ((2, 0, 1) if channels_last else (0, 1, 2)))
    try:
        if network.nature_cnn is not None:
            cnn: nn.Module = NatureCnn(channels, height, width, network.nature_cnn.hidden_size)
        else:
            assert network.impala_cnn is not None
            settings = network.impala_cnn
            cnn = ImpalaCnn(channels, height, width, settings.channels, settings.hidden_size)
    except RuntimeError as error:  # torch: a kernel larger than what is left of the image
        raise BadConfiguration(
            f"spec.network.{name}: images of {height} x {width} are too small for it; use a smaller network or larger images"
        ) from error
    return nn.Sequential(Pixels(channels_last), cnn)


def _user_torso(entry_point: str, space: spaces.Space) -> nn.Module:
    """``module:factory``: called with the observation space, it returns a module from ``[N, ...]`` to ``[N, features]``.

    The module is given floats as float32, everything else in the space's own type.
    """
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise BadConfiguration(
            f"spec.network.entryPoint: observations of {_shown(space)} are not one array; "
            "wrap the environment with gymnasium.wrappers.FlattenObservation"
        )
    module_name, _, factory_name = entry_point.partition(":")
    with user_code(f"spec.network.entryPoint: importing {module_name!r}"):
        module = importlib.import_module(module_name)
    factory: Callable[[spaces.Space], nn.Module] | None = getattr(module, factory_name, None)
    if factory is None:
        raise UserCodeError(f"spec.network.entryPoint: module {module_name!r} has no {factory_name!r}")
    with user_code(f"spec.network.entryPoint: {entry_point}(observation_space)"):
        torso = factory(space)
    if not isinstance(torso, nn.Module):
        raise UserCodeError(
            f"spec.network.entryPoint: {entry_point} must return a torch.nn.Module, got {type(torso).__name__}"
        )
    if any(True for _ in torso.buffers()):
        raise UserCodeError(
            f"spec.network.entryPoint: {entry_point} has buffers (as BatchNorm does), and samplers get parameters only; "
            "use a normalisation without running statistics, such as LayerNorm"
        )
    other_floats = np.issubdtype(space.dtype, np.floating) and space.dtype != np.float32
    return nn.Sequential(AsFloat(), torso) if other_floats else torso


def _features(torso: nn.Module, space: spaces.Space, network: Network) -> int:
    """How many features the torso puts out, seen by giving it two observations."""
    observation = _two_of(space)
    try:
        with torch.no_grad():
            features = torso(observation)
    except Exception as error:
        message = f"spec.network.{network.name}: the network does not fit observations of {_shown(space)}"
        if network.entry_point is not None:
            raise user_code_error(f"{message}: it", error) from error
        raise BadConfiguration(f"{message}: {one_line(error)}") from error
    found = f"a {type(features).__name__}"
    if isinstance(features, Tensor):
        found = f"{tuple(features.shape)} of {features.dtype}"
        if features.dim() == 2 and features.shape[0] == 2 and features.dtype == torch.float32:
            return int(features.shape[1])
    raise BadConfiguration(
        f"spec.network.{network.name}: the network must turn observations [N, ...] into features [N, F] of "
        f"torch.float32, but turned {tuple(observation.shape)} into {found}"
    )


def _two_of(space: spaces.Space) -> Tensor:
    if not _is_known(space):
        raise BadConfiguration(
            f"spec.environment: observations of {_shown(space)} are of a type that torch does not know; use float32"
        )
    try:
        with np.errstate(over="ignore"):
            return torch.from_numpy(np.stack([np.asarray(space.sample()) for _ in range(2)]))
    except (
        ValueError,
        OverflowError,
    ) as error:  # gymnasium computes the width of the bounds in the type itself
        raise BadConfiguration(
            f"spec.environment: observations of {_shown(space)} cannot be drawn ({one_line(error)}); "
            "give the space narrower bounds, or none: -numpy.inf and numpy.inf"
        ) from error


def _is_known(space: spaces.Space) -> bool:
    """Whether torch has its type: not of long doubles."""
    try:
        torch.from_numpy(np.empty(0, space.dtype))
    except TypeError:
        return False
    return True


def _shown(space: spaces.Space) -> str:
    """A space in one line of bearable length: those with many bounds print as paragraphs."""
    return shorten(str(space), 160, placeholder=" ...")
