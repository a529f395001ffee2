"""Validates the messages in which samplers push gradients or unrolls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.gradients.accounts import GradientPush, P, Place, Push, UnrollPush
from rltraining_trainer.dataflow.moments import moments_field
from rltraining_trainer.transport import Payload

Reader = Callable[[Push, Payload], P]
"""Reads the content of a push from its payload. Raises TypeError or ValueError naming the field."""


@dataclass(frozen=True)
class GradientReader:
    """Reads ``{"gradient": Tensor [size], "weight": float, "steps": int, "episodes": int, "returns": Tensor [K],
    "terms": {str: float}, "moments": Tensor [U, 1 + 2·d]}``."""

    size: int

    def __call__(self, push: Push, payload: Payload) -> GradientPush:
        gradient = field(payload, "gradient", Tensor)
        if gradient.shape != (self.size,) or gradient.dtype != torch.float32:
            raise ValueError(
                f"the field gradient must be {self.size} numbers (float32), not {list(gradient.shape)} "
                f"({gradient.dtype}): both sides need the same environment and network"
            )
        return GradientPush(
            push.source,
            push.place,
            push.version,
            gradient=gradient,
            weight=_at_least_0(payload, "weight", float),
            steps=_at_least_0(payload, "steps", int),
            episodes=_at_least_0(payload, "episodes", int),
            returns=vector(payload, "returns", torch.float32),
            terms=_terms(payload),
            moments=moments_field(payload),
        )


@dataclass(frozen=True)
class UnrollReader:
    """Reads ``{"unroll": {...}}``, an ``Unroll`` of T steps.

    The number of environments may differ between samplers. All other shapes are checked, so that
    the unrolls of several samplers can be concatenated.
    """

    length: int
    """T."""
    observation_shape: Sequence[int]
    action_shape: Sequence[int]
    state_sizes: Sequence[int]
    """H of each tensor of the recurrent state."""
    moments_size: int = 0
    """1 + 2·d, the size of an unroll's moments. 0 without normalisation."""

    def __call__(self, push: Push, payload: Payload) -> UnrollPush:
        return UnrollPush(push.source, push.place, push.version, self.unroll(payload))

    def unroll(self, payload: Payload) -> dict[str, Any]:
        """Returns the field "unroll" of a message. Raises TypeError or ValueError naming the field."""
        unroll: dict[str, Any] = field(payload, "unroll", dict)
        valid = field(unroll, "valid", Tensor)
        # Check the columns.
        rows, batch = self.length, valid.shape[1] if valid.dim() == 2 else 0
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype | None]] = {
            "valid": ((rows, batch), torch.bool),
            "observation": ((rows + 1, batch, *self.observation_shape), None),
            "action": ((rows, batch, *self.action_shape), None),
            "log_prob": ((rows, batch), torch.float32),
            "reward": ((rows, batch), torch.float32),
            "ended": ((rows, batch), torch.bool),
            "first": ((rows + 1, batch), torch.bool),
        }
        for name, (shape, dtype) in shapes.items():
            _check(f"unroll.{name}", field(unroll, name, Tensor), shape, dtype)

        # Check the recurrent state.
        state = field(unroll, "state", tuple)
        if len(state) != len(self.state_sizes) or not all(isinstance(part, Tensor) for part in state):
            raise ValueError(f"the field unroll.state must be {len(self.state_sizes)} tensors")
        for part, size in zip(state, self.state_sizes, strict=True):
            _check("unroll.state", part, (batch, size), torch.float32)

        # Check the statistics.
        vector(unroll, "episodes", torch.int64, batch)
        vector(unroll, "episode_return", torch.float32)
        moments = moments_field(unroll)
        _check("unroll.moments", moments, (len(moments), self.moments_size), torch.float64)
        return unroll


def vector(payload: Payload, name: str, dtype: torch.dtype, size: int | None = None) -> Tensor:
    """Reads a field that must be a vector of this type, and of this size unless it is None."""
    values: Tensor = field(payload, name, Tensor)
    if values.dim() != 1 or values.dtype != dtype or size not in (None, len(values)):
        raise ValueError(
            f"the field {name} must be a vector ({dtype}), not {list(values.shape)} ({values.dtype})"
        )
    return values


def _at_least_0(payload: Payload, name: str, kind: type) -> Any:
    value = field(payload, name, kind)
    if not 0 <= value < math.inf:
        raise ValueError(f"the field {name} must be a finite number >= 0, not {value}")
    return value


def _terms(payload: Payload) -> dict[str, float]:
    terms: dict[str, float] = field(payload, "terms", dict)
    if not all(isinstance(name, str) and isinstance(term, float) for name, term in terms.items()):
        raise TypeError("the field terms must be numbers by name")
    return terms


def place(payload: Payload) -> Place:
    """Reads the field "place" of a message. Raises TypeError if it is malformed."""
    values = field(payload, "place", tuple)
    if len(values) != 3 or not all(
        isinstance(value, kind) for value, kind in zip(values, (str, int, int), strict=True)
    ):
        raise TypeError("the field place must be an epoch, an iteration and a position")
    return Place(*values)


def _check(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype | None) -> None:
    if tensor.shape != shape or dtype not in (None, tensor.dtype):
        raise ValueError(
            f"the field {name} must be {list(shape)} ({dtype or 'any type'}), not {list(tensor.shape)} "
            f"({tensor.dtype}): both sides need the same environment and network"
        )
