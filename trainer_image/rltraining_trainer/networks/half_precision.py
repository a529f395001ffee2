"""Convolutions in bfloat16, for acting on CPUs that have matrix units for it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from rltraining_trainer.networks.torsos import ImpalaCnn, NatureCnn, Pixels


def half_precision_torso(torso: nn.Module) -> HalfPrecisionTorso | None:
    """The same in bfloat16, if it is one of our convolutional networks and this CPU multiplies such matrices several times as
    fast as those of float32 (Intel's AMX, from Sapphire Rapids on)."""
    if not torch.cpu.get_capabilities().get("amx_bf16", False):
        return None
    if not (isinstance(torso, nn.Sequential) and len(torso) == 2 and isinstance(torso[0], Pixels)):
        return None
    return HalfPrecisionTorso(torso) if isinstance(torso[1], NatureCnn | ImpalaCnn) else None


class HalfPrecisionTorso:
    """A copy of a convolutional torso, in bfloat16: uint8 images ``[N, ...]`` to float32 features."""

    def __init__(self, torso: nn.Sequential) -> None:
        self._torso = copy.deepcopy(torso).requires_grad_(False)
        self._torso.to(torch.bfloat16).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._pairs = [*zip(self._torso.parameters(), torso.parameters(), strict=True)]
        pixels = self._torso[0]
        assert isinstance(pixels, Pixels)
        pixels.dtype = torch.bfloat16

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the values that the torso's parameters have now."""
        for mine, parameter in self._pairs:
            mine.copy_(parameter)

    def __call__(self, images: Tensor) -> Tensor:
        return self._torso(images).float()
