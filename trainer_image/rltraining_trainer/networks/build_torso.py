"""Builds the torso of ``spec.network``, which maps observations ``[N, ...]`` to features ``[N, F]``."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np
import torch
from gymnasium import spaces
from rltraining_api import network as api
from rltraining_api.network import Network
from torch import Tensor, nn

from rltraining_trainer.environments.nested_spaces import shown
from rltraining_trainer.environments.packed_space import PackedSpace
from rltraining_trainer.errors import BadConfiguration, UserCodeError, one_line, user_code, user_code_error
from rltraining_trainer.networks.encoders import SMALL_IMAGE, image_encoder, vector_encoder
from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.parts import PartsTorso
from rltraining_trainer.networks.torsos import (
    ACTIVATIONS,
    AsFloat,
    ConvolutionalLayers,
    ImpalaCnn,
    Mlp,
    NatureCnn,
    SmallCnn,
    orthogonal,
)
from rltraining_trainer.networks.unpack import Structure
from rltraining_trainer.networks.user_torso import UserTorso

WRAP = "wrap the environment (environment.wrappers: [{name: FlattenObservation}])"


def build_torso(
    network: Network, space: spaces.Space, normalizer: Normalizer | None
) -> tuple[nn.Module, int]:
    """Returns the torso for these observations and its number of features.

    Raises:
        BadConfiguration: The network does not fit the observations.
        UserCodeError: ``network.entryPoint`` cannot be imported, or raised.
    """
    if network.entry_point is not None:
        return _user_torso(network, network.entry_point, space, normalizer)
    if isinstance(space, PackedSpace):
        torso: nn.Module = _parts_torso(network, space, normalizer)
    elif network.mlp is not None:
        torso = _mlp(network, space, normalizer)
    else:
        torso = _cnn(network, space)
    return torso, _features(torso, space, network)


def build_flattener(
    network: Network, space: spaces.Space, normalizer: Normalizer | None
) -> tuple[nn.Module, int]:
    """Returns a torso that only encodes and flattens, and its number of features."""
    torso: nn.Module
    if isinstance(space, PackedSpace):
        torso = PartsTorso(space, _flat_encoders(space), normalizer)
    else:
        # A single number has no axis that Flatten could begin at.
        is_number = isinstance(space, spaces.Box) and space.shape == ()
        flatten = nn.Unflatten(0, (-1, 1)) if is_number else nn.Flatten()
        torso = nn.Sequential(_encoder(space, normalizer), flatten)
    return torso, _features(torso, space, network)


def _mlp(network: Network, space: spaces.Space, normalizer: Normalizer | None) -> nn.Module:
    assert network.mlp is not None
    hidden_sizes, activation = network.mlp.hidden_sizes, ACTIVATIONS[network.mlp.activation]
    encoder = _encoder(space, normalizer)
    is_one_hot = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    shape = (spaces.flatdim(space),) if is_one_hot else tuple(space.shape or ())
    mlp = Mlp(shape, hidden_sizes, activation)
    return mlp if isinstance(encoder, nn.Identity) else nn.Sequential(encoder, mlp)


def _encoder(space: spaces.Space, normalizer: Normalizer | None) -> nn.Module:
    if normalizer is not None and normalizer.shape is not None:
        return normalizer
    encoder = vector_encoder(space)
    if encoder is None:
        raise BadConfiguration(
            f"spec.environment: observations of {shown(space)} are not arrays of numbers; {WRAP}"
        )
    return encoder


def _cnn(network: Network, space: spaces.Space) -> nn.Module:
    found = image_encoder(space)
    if found is None:
        raise BadConfiguration(
            f"spec.network.{network.name}: it needs images, a Box [height, width, channels] or a stack "
            f"of them, but the observations are {shown(space)}; use network.mlp or network.entryPoint"
        )
    encoder, (channels, height, width) = found
    try:
        cnn = _published_cnn(network, channels, height, width)
    except RuntimeError as error:  # torch: a kernel is larger than its input
        raise BadConfiguration(
            f"spec.network.{network.name}: images of {height} x {width} are too small for it; use a smaller network or "
            "larger images"
        ) from error
    return nn.Sequential(encoder, cnn)


def _published_cnn(network: Network, channels: int, height: int, width: int) -> nn.Module:
    settings = _cnn_settings(network)
    if isinstance(settings, api.NatureCnn):
        return _with_precision(NatureCnn(channels, height, width, settings.hidden_size), settings)
    return _with_precision(
        ImpalaCnn(channels, height, width, settings.channels, settings.hidden_size), settings
    )


def _cnn_settings(network: Network) -> api.NatureCnn | api.ImpalaCnn:
    settings = network.nature_cnn or network.impala_cnn
    assert settings is not None
    return settings


def _with_precision(cnn: ConvolutionalLayers, settings: api.Cnn) -> ConvolutionalLayers:
    """Sets the type in which the layers compute while gradients are computed."""
    if settings.gradient_precision == "BFloat16":
        cnn.gradient_dtype = torch.bfloat16
    return cnn


def _parts_torso(network: Network, space: PackedSpace, normalizer: Normalizer | None) -> nn.Module:
    """Returns the torso for packed observations.

    With ``network.mlp`` all parts are encoded, flattened and passed to its layers. With a
    convolutional network each image gets its own convolutions, and one layer combines their
    features with the other parts.
    """
    if network.mlp is not None:
        torso = PartsTorso(space, _flat_encoders(space), normalizer)
        sizes, activation = network.mlp.hidden_sizes, ACTIVATIONS[network.mlp.activation]
        torso.trunk = Mlp((_features(torso, space, network),), sizes, activation)
        return torso
    # Choose an encoder for each part.
    hidden_size = _cnn_settings(network).hidden_size
    encoders = [_image_or_vector(network, part.space) for part in space.parts if not part.is_mask]
    if not any(map(_has_convolutions, encoders)):
        raise BadConfiguration(
            f"spec.network.{network.name}: it needs images, but the observations contain none: "
            f"{shown(space.original)}; use network.mlp or network.entryPoint"
        )
    # Combine the features of several parts.
    torso = PartsTorso(space, encoders, normalizer)
    if len(encoders) > 1:
        size = _features(torso, space, network)
        torso.trunk = nn.Sequential(orthogonal(nn.Linear(size, hidden_size), 2**0.5), nn.ReLU())
    return torso


def _flat_encoders(space: PackedSpace) -> list[nn.Module]:
    return [_encoder(part.space, None) for part in space.parts if not part.is_mask]


def _image_or_vector(network: Network, space: spaces.Space) -> nn.Module:
    found = image_encoder(space)
    if found is None:
        return _encoder(space, None)
    encoder, (channels, height, width) = found
    if min(height, width) < SMALL_IMAGE:
        settings = _cnn_settings(network)
        cnn = SmallCnn(channels, height, width, settings.hidden_size)
        return nn.Sequential(encoder, _with_precision(cnn, settings))
    return nn.Sequential(encoder, _published_cnn(network, channels, height, width))


def _has_convolutions(encoder: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d) for module in encoder.modules())


def _user_torso(
    network: Network, entry_point: str, space: spaces.Space, normalizer: Normalizer | None
) -> tuple[nn.Module, int]:
    """Returns the torso that the user's ``module:factory`` makes, and its number of features.

    The factory is called with the observation space and returns a module that maps ``[N, ...]`` to
    ``[N, features]``. The module receives floats as float32 and everything else in the space's
    type. For a Dict or Tuple of observations it receives the same structure of tensors.
    """
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise BadConfiguration(
            f"spec.network.entryPoint: observations of {shown(space)} are not arrays of numbers; {WRAP}"
        )
    # Make the module, and convert observations for it.
    if isinstance(space, PackedSpace):
        if normalizer is not None and normalizer.shape is not None:
            raise BadConfiguration(
                f"spec.environment.normalize.observations: observations of {shown(space.original)} cannot be "
                "normalised with network.entryPoint, and normalisation is on by default for most vectors; set "
                "environment.normalize: {observations: false}, or use network.mlp"
            )
        torso: nn.Module = nn.Sequential(Structure(space), _call_factory(entry_point, space.original))
    else:
        torso = _call_factory(entry_point, space)
        if np.issubdtype(space.dtype, np.floating) and space.dtype != np.float32:
            torso = nn.Sequential(AsFloat(), torso)
    # Determine its number of features.
    features = _features(torso, space, network)
    torso = UserTorso(torso, entry_point)
    if normalizer is not None and normalizer.shape is not None:
        torso = nn.Sequential(normalizer, torso)
    return torso, features


def _call_factory(entry_point: str, space: spaces.Space) -> nn.Module:
    """Imports and calls the factory, and checks the module that it returns."""
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
            f"spec.network.entryPoint: {entry_point} has buffers (as BatchNorm does), but samplers "
            "receive only parameters; use a normalisation without running statistics, such as LayerNorm"
        )
    return torso


def _features(torso: nn.Module, space: spaces.Space, network: Network) -> int:
    """Returns the torso's number of features, after applying it to two random observations."""
    # Apply the torso.
    observation = _two_of(space)
    try:
        with torch.no_grad():
            features = torso(observation)
    except Exception as error:
        original = space.original if isinstance(space, PackedSpace) else space
        message = f"spec.network.{network.name}: the network does not fit observations of {shown(original)}"
        if network.entry_point is not None:
            raise user_code_error(f"{message}: it", error) from error
        raise BadConfiguration(f"{message}: {one_line(error)}") from error
    # Check its output.
    found = f"a {type(features).__name__}"
    if isinstance(features, Tensor):
        found = f"{tuple(features.shape)} of {features.dtype}"
        if features.dim() == 2 and features.shape[0] == 2 and features.dtype == torch.float32:
            return int(features.shape[1])
    given = "composite observations" if isinstance(space, PackedSpace) else str(tuple(observation.shape))
    raise BadConfiguration(
        f"spec.network.{network.name}: the network must map observations [N, ...] to features [N, F] "
        f"of torch.float32, but mapped {given} to {found}"
    )


def _two_of(space: spaces.Space) -> Tensor:
    """Returns two random observations ``[2, ...]``."""
    if not is_known(space):
        raise BadConfiguration(
            f"spec.environment: torch does not support the type of observations of {shown(space)}; "
            "use float32"
        )
    try:
        with np.errstate(over="ignore"):
            return torch.from_numpy(np.stack([np.asarray(space.sample()) for _ in range(2)]))
    except (ValueError, OverflowError) as error:
        # Gymnasium computes the width of the bounds in the space's type, which can overflow.
        raise BadConfiguration(
            f"spec.environment: observations of {shown(space)} cannot be sampled "
            f"({one_line(error)}); give the space narrower bounds, or none: -numpy.inf and numpy.inf"
        ) from error


def is_known(space: spaces.Space) -> bool:
    """Returns whether torch supports the type of the space, which excludes long doubles."""
    try:
        torch.from_numpy(np.empty(0, space.dtype))
    except TypeError:
        return False
    return True
