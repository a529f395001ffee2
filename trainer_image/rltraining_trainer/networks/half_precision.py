"""Convolutions in bfloat16, for acting on CPUs that have instructions for it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from rltraining_trainer.networks.torsos import ImpalaCnn, NatureCnn, Pixels


def half_precision_torso(torso: nn.Module) -> HalfPrecisionTorso | None:
    """Returns a bfloat16 copy of a convolutional torso, or None if that would not be faster.

    The CPU must have instructions for bfloat16, and the torso must be one of this package.
    """
    if not bfloat16_instructions():
        return None
    if not (isinstance(torso, nn.Sequential) and len(torso) == 2 and isinstance(torso[0], Pixels)):
        return None
    return HalfPrecisionTorso(torso) if isinstance(torso[1], NatureCnn | ImpalaCnn) else None


def bfloat16_instructions() -> str:
    """Returns "AMX" (Intel since Sapphire Rapids), "AVX512_BF16" (AMD since Zen 4), or nothing without such instructions."""
    if torch.cpu._is_amx_tile_supported():  # all processors with AMX have its bfloat16 instructions, too
        return "AMX"
    return "AVX512_BF16" if torch.cpu._is_avx512_bf16_supported() else ""


class HalfPrecisionTorso:
    """Maps uint8 images ``[N, ...]`` to float32 features with a bfloat16 copy of a torso."""

    def __init__(self, torso: nn.Sequential) -> None:
        self._torso = copy.deepcopy(torso).requires_grad_(False)
        self._torso.to(torch.bfloat16).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._pairs = [*zip(self._torso.parameters(), torso.parameters(), strict=True)]
        pixels = self._torso[0]
        assert isinstance(pixels, Pixels)
        pixels.dtype = torch.bfloat16

    @torch.no_grad()
    def refresh(self) -> None:
        """Copies the current parameters of the torso."""
        for mine, parameter in self._pairs:
            mine.copy_(parameter)

    def __call__(self, images: Tensor) -> Tensor:
        return self._torso(images).float()
