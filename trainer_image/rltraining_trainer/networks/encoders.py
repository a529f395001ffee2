"""Encodes the array of one space for a network: scaling, one-hot encoding and image layout."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rltraining_trainer.environments.nested_spaces import LARGE, shown
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks.torsos import AsFloat, Pixels

SMALL_IMAGE = 36
"""Minimum side of an image for the convolutions of Mnih et al. 2015."""
ONE_HOT_MAX = 1_000_000
"""Maximum number of inputs of a one-hot encoding. More of them would exhaust the memory."""


class OneHot(nn.Module):
    """One-hot encodes discrete observations ``[N, ...]`` as ``[N, sum(choices)]``.

    Args:
        choices: Number of values of each element.
        start: Smallest value of each element.
    """

    _column: Tensor
    _value: Tensor

    def __init__(self, choices: np.ndarray, start: np.ndarray) -> None:
        super().__init__()
        counts = np.asarray(choices, np.int64).reshape(-1)
        column = np.repeat(np.arange(len(counts)), counts)
        value = np.concatenate(
            [np.arange(n) + first for n, first in zip(counts, np.ravel(start), strict=True)]
        )
        self.register_buffer("_column", torch.from_numpy(column), persistent=False)
        self.register_buffer("_value", torch.from_numpy(value), persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        columns = observation.reshape(observation.shape[0], -1)
        return columns.index_select(1, self._column).eq(self._value).float()


class Scaled(nn.Module):
    """Scales bounded arrays ``[N, *shape]`` to float32 in [0, 1], or in [-1, 1] if ``low`` is
    negative.

    Elements with infinite or very large bounds are not scaled.
    """

    _center: Tensor
    _scale: Tensor

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        super().__init__()
        low, high = low.astype(np.float64), high.astype(np.float64)
        usable = np.isfinite(low) & np.isfinite(high) & (np.abs(low) <= LARGE) & (np.abs(high) <= LARGE)
        usable &= high > low
        center = np.where(usable & (low > 0), low, 0.0)
        width = np.where(low < 0, np.maximum(-low, high), high - center)
        scale = np.divide(1.0, width, out=np.ones_like(width), where=usable)
        self.register_buffer("_center", _smallest(center), persistent=False)
        self.register_buffer("_scale", _smallest(scale), persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        return (observation.float() - self._center) * self._scale


class Contrast(nn.Module):
    """Divides each small image of bytes ``[N, ...]`` by its root mean square.

    In grids such as MiniGrid's the bytes are small object ids. Divided by 255 they would be too
    small to learn from.
    """

    def forward(self, observation: Tensor) -> Tensor:
        image = observation.float()
        axes = tuple(range(1, image.dim()))
        return image * (image.square().mean(axes, keepdim=True) + 1e-4).rsqrt()


class ChannelsFirst(nn.Module):
    """Converts images ``[N, *shape]`` to ``[N, C, H, W]``, stacking the channels of all frames.

    The memory format is channels-last, as in ``Pixels``.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._dimensions = len(shape)
        self._channels_last = channels_are_last(shape)

    def forward(self, observation: Tensor) -> Tensor:
        image = observation
        if self._dimensions == 2:
            image = image.unsqueeze(1)
        elif self._dimensions == 4 and self._channels_last:
            image = image.permute(0, 1, 4, 2, 3).flatten(1, 2)
        elif self._dimensions == 4:
            image = image.flatten(1, 2)
        elif self._channels_last:
            image = image.permute(0, 3, 1, 2)
        return image.contiguous(memory_format=torch.channels_last)


def vector_encoder(space: spaces.Space) -> nn.Module | None:
    """Returns an encoder of arrays ``[N, *shape]`` as float32, or None for unsupported spaces."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        choices = np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        if (inputs := int(choices.sum())) > ONE_HOT_MAX:
            raise BadConfiguration(
                f"spec.environment: observations of {shown(space)} need {inputs:,} inputs of the network, one "
                f"for each value (at most {ONE_HOT_MAX:,}); return them as a Box of numbers instead"
            )
        return OneHot(choices, space.start)
    if isinstance(space, spaces.MultiBinary):
        return AsFloat()
    if not isinstance(space, spaces.Box):
        return None
    if space.dtype == np.float32:
        return nn.Identity()
    if is_small_image(space):
        return Contrast()
    is_integer = np.issubdtype(space.dtype, np.integer)
    return Scaled(space.low, space.high) if is_integer else AsFloat()


def image_encoder(space: spaces.Space) -> tuple[nn.Module, tuple[int, int, int]] | None:
    """Returns an encoder of images ``[N, *shape]`` as float32 ``[N, C, H, W]``, and (C, H, W).

    Returns None if the space is not one of images (see ``is_image``).
    """
    if not is_image(space):
        return None
    shape = space.shape
    if len(shape) == 2:
        sizes = (1, *shape)
    else:
        *stack, a, b, c = shape
        frames = stack[0] if stack else 1
        sizes = (frames * c, a, b) if channels_are_last(shape) else (frames * a, b, c)
    if is_small_image(space):
        return nn.Sequential(Contrast(), ChannelsFirst(shape)), sizes
    if len(shape) == 3 and space.dtype == np.uint8:
        return Pixels(channels_are_last(shape)), sizes
    scaled = AsFloat() if space.dtype == bool else Scaled(space.low, space.high)
    return nn.Sequential(scaled, ChannelsFirst(shape)), sizes


def is_image(space: spaces.Space) -> TypeGuard[spaces.Box]:
    """Returns whether the space is a Box of images.

    Images have three axes, one of which is channels, or four for a stack of frames. Two axes are an
    image only for uint8.
    """
    if not isinstance(space, spaces.Box):
        return False
    return len(space.shape) in (3, 4) or (len(space.shape) == 2 and space.dtype == np.uint8)


def is_small_image(space: spaces.Box) -> bool:
    """Returns whether the space is one of uint8 images with a side below ``SMALL_IMAGE``."""
    if not is_image(space) or space.dtype != np.uint8:
        return False
    shape = space.shape if len(space.shape) == 2 else space.shape[-3:]
    sides = shape if len(shape) == 2 else (shape[:2] if channels_are_last(space.shape) else shape[1:])
    return min(sides) < SMALL_IMAGE


def channels_are_last(shape: tuple[int, ...]) -> bool:
    """Returns whether the last axis of an image is channels: it is not longer than the first."""
    return len(shape) > 2 and shape[-1] <= shape[-3]


def _smallest(values: np.ndarray) -> Tensor:
    """Converts ``values`` to float32, as a scalar if all are equal."""
    flat = values.reshape(-1)
    same = bool(flat.size) and bool((flat == flat[0]).all())
    return torch.tensor(flat[0] if same else values, dtype=torch.float32)
