"""Torsos: the published networks that map observations to features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"Tanh": nn.Tanh, "Relu": nn.ReLU, "Elu": nn.ELU, "Silu": nn.SiLU}
"""Maps ``spec.network.mlp.activation`` to modules of torch."""


Layer = TypeVar("Layer", bound=nn.Module)


def orthogonal(layer: Layer, gain: float) -> Layer:
    """Initializes orthogonal weights and zero biases (Saxe et al. 2014)."""
    nn.init.orthogonal_(layer.weight, gain)  # type: ignore[arg-type]
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


class Mlp(nn.Sequential):
    """Fully connected layers: flattened observations ``[N, ...]`` to features ``[N, hidden[-1]]``."""

    def __init__(
        self, observation_shape: Sequence[int], hidden_sizes: Sequence[int], activation: type[nn.Module]
    ) -> None:
        sizes = [math.prod(observation_shape), *hidden_sizes]
        layers: list[nn.Module] = []
        if not observation_shape:
            layers.append(nn.Unflatten(0, (-1, 1)))
        elif len(observation_shape) > 1:
            layers.append(nn.Flatten())
        for inputs, outputs in pairwise(sizes):
            layers += [orthogonal(nn.Linear(inputs, outputs), math.sqrt(2)), activation()]
        super().__init__(*layers)


class AsFloat(nn.Module):
    """Converts observations to float32."""

    def forward(self, observation: Tensor) -> Tensor:
        return observation.float()


class Pixels(nn.Module):
    """Converts uint8 images ``[N, H, W, C]`` or ``[N, C, H, W]`` to floats ``[N, C, H, W]`` in [0,
    1].

    The memory format is channels-last, which halves the time of convolutions with few channels on
    CPUs (``python -m tests.bench atari``).
    """

    def __init__(self, channels_last: bool) -> None:
        super().__init__()
        self.channels_last = channels_last
        self.dtype = torch.float32

    def forward(self, observation: Tensor) -> Tensor:
        image = observation if self.channels_last else observation.permute(0, 2, 3, 1).contiguous()
        return image.permute(0, 3, 1, 2).to(self.dtype) / 255.0


class ConvolutionalLayers(nn.Sequential):
    """Layers on images that may compute in bfloat16 while gradients are recorded.

    Without gradients they compute in float32, so that evaluations and policies do not depend on the precision.
    """

    gradient_dtype = torch.float32

    def forward(self, images: Tensor) -> Tensor:
        if self.gradient_dtype == torch.float32 or not torch.is_grad_enabled():
            return super().forward(images)
        with torch.autocast(images.device.type, self.gradient_dtype):
            return super().forward(images).float()

    def first(self, count: int) -> ConvolutionalLayers:
        """Returns the first layers, with the same precision."""
        layers = ConvolutionalLayers(*list(self)[:count])
        layers.gradient_dtype = self.gradient_dtype
        return layers


class NatureCnn(ConvolutionalLayers):
    """The network of Mnih et al. 2015 (Nature DQN) on ``[N, C, H, W]``: three convolutions and a layer."""

    def __init__(self, channels: int, height: int, width: int, hidden_size: int) -> None:
        gain = math.sqrt(2)
        convolutions = nn.Sequential(
            orthogonal(nn.Conv2d(channels, 32, 8, 4), gain),
            nn.ReLU(),
            orthogonal(nn.Conv2d(32, 64, 4, 2), gain),
            nn.ReLU(),
            orthogonal(nn.Conv2d(64, 64, 3, 1), gain),
            nn.ReLU(),
            nn.Flatten(),
        )
        features = _output_size(convolutions, channels, height, width)
        super().__init__(convolutions, orthogonal(nn.Linear(features, hidden_size), gain), nn.ReLU())


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(F.relu(x))))


class ImpalaCnn(ConvolutionalLayers):
    """The deep network of Espeholt et al. 2018 (IMPALA, figure 3) on ``[N, C, H, W]``.

    Each section has a convolution, a max-pool and two residual blocks. One layer follows the
    sections.
    """

    def __init__(
        self, channels: int, height: int, width: int, sections: Sequence[int], hidden_size: int
    ) -> None:
        layers: list[nn.Module] = []
        inputs = channels
        for outputs in sections:
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
            layers += [_Residual(outputs), _Residual(outputs)]
            inputs = outputs
        convolutions = nn.Sequential(*layers, nn.ReLU(), nn.Flatten())
        features = _output_size(convolutions, channels, height, width)
        super().__init__(convolutions, nn.Linear(features, hidden_size), nn.ReLU())


def _output_size(module: nn.Module, *shape: int) -> int:
    with torch.no_grad():
        return module(torch.zeros(1, *shape)).shape[1]


class SmallCnn(ConvolutionalLayers):
    """Two 3 x 3 convolutions and one layer on ``[N, C, H, W]``, for small images.

    The convolutions have a stride of 2 for images of 16 pixels or more. Without it the layer of a 24 x 24 image has
    ten million weights.
    """

    def __init__(self, channels: int, height: int, width: int, hidden_size: int) -> None:
        gain, stride = math.sqrt(2), 2 if max(height, width) >= 16 else 1
        convolutions = nn.Sequential(
            orthogonal(nn.Conv2d(channels, 16, 3, stride, padding=1), gain),
            nn.ReLU(),
            orthogonal(nn.Conv2d(16, 32, 3, stride, padding=1), gain),
            nn.ReLU(),
            nn.Flatten(),
        )
        features = _output_size(convolutions, channels, height, width)
        super().__init__(convolutions, orthogonal(nn.Linear(features, hidden_size), gain), nn.ReLU())
