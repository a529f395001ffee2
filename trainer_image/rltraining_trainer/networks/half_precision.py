"""Convolutions in bfloat16, for acting on CPUs with matrix units."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from rltraining_trainer.networks.torsos import ImpalaCnn, NatureCnn, Pixels


def half_precision_torso(torso: nn.Module) -> HalfPrecisionTorso | None:
    """Returns a bfloat16 copy of a convolutional torso, or None if that would not be faster.

    The CPU must have Intel's AMX (Sapphire Rapids and later), which is several times as fast as
    float32, and the torso must be one of this package.
    """
    if not has_matrix_units():
        return None
    if not (isinstance(torso, nn.Sequential) and len(torso) == 2 and isinstance(torso[0], Pixels)):
        return None
    return HalfPrecisionTorso(torso) if isinstance(torso[1], NatureCnn | ImpalaCnn) else None


def has_matrix_units() -> bool:
    """Returns whether the CPU has Intel's AMX with bfloat16."""
    if hasattr(torch.cpu, "get_capabilities"):
        return bool(torch.cpu.get_capabilities().get("amx_bf16", False))
    # Up to torch 2.10. All processors with AMX have its bfloat16 instructions, too.
    return torch.cpu._is_amx_tile_supported()


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
