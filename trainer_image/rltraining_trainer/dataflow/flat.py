"""All parameters of a module as one flat vector."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

_VECTORS = WeakTensorKeyDictionary()
"""The vectors of `flatten_parameters`, as keys. Values: the positions of frozen parameters ``[K]``."""

_SLICES = WeakTensorKeyDictionary()
"""The same for their slices."""


Rounded: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""A vector of `flatten_parameters` with half of the bytes: its values ``[N]`` in bfloat16, the positions ``[K]`` of frozen
parameters, such as statistics of observations, which need all digits, and their float32 values ``[K]``."""


def flatten_parameters(module: nn.Module) -> Tensor:
    """Moves all parameters of `module` into one vector and replaces them by views of it.

    Clear gradients with ``flat.grad.zero_()``. ``zero_grad(set_to_none=True)`` would detach the
    views. The vector contains frozen parameters, because a copy of the policy needs them, with zero
    gradients. It does not contain buffers, which must be sent separately.

    Returns:
        The vector, float32 ``[N]``, a leaf that can be the only parameter of an optimizer. Its
        ``grad`` is a zero vector to which ``backward`` adds, because the ``grad`` of each trainable
        parameter is a view of it.

    Raises:
        ValueError: A parameter is not float32, or there are no parameters.
    """
    parameters = dict(module.named_parameters())
    if not parameters:
        raise ValueError(f"{type(module).__name__} has no parameters to train")
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32:
            raise ValueError(f"parameter {name} is {parameter.dtype}: only float32 can be trained here")
    # Move the parameters and gradients.
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters.values()])
    gradient = torch.zeros_like(flat)
    start, frozen = 0, []
    for parameter in parameters.values():
        stop = start + parameter.numel()
        if not parameter.requires_grad:
            frozen.append(torch.arange(start, stop))
        parameter.data = flat[start:stop].view(parameter.shape)
        parameter.grad = gradient[start:stop].view(parameter.shape) if parameter.requires_grad else None
        start = stop
    flat.requires_grad_()
    flat.grad = gradient
    _VECTORS[flat] = torch.cat(frozen) if frozen else torch.arange(0)
    return flat


def slice_of(flat: Tensor, cut: slice) -> Tensor:
    """Returns a part of a vector of `flatten_parameters` without a gradient, which shares its memory."""
    part, frozen = flat.detach()[cut], _VECTORS[flat]
    _SLICES[part] = frozen[(frozen >= cut.start) & (frozen < cut.stop)] - cut.start
    return part


def frozen_positions(flat: Tensor) -> Tensor | None:
    """Returns the positions of frozen parameters ``[K]`` in a vector of `flatten_parameters`, or in a part of `slice_of`.
    None for other tensors."""
    return _VECTORS.get(flat, _SLICES.get(flat))


def round_flat(flat: Tensor, exact: Tensor) -> Rounded:
    """Rounds all values of a vector ``[N]``, except those at the positions ``exact`` ``[K]``."""
    return flat.bfloat16(), exact, flat[exact]


def check_gradient(flat: Tensor) -> None:
    """Checks that a vector of `flatten_parameters` still has its gradient. Other tensors pass.

    Raises:
        ValueError: ``zero_grad()`` of an optimizer has removed the gradient, so that its steps would change nothing.
    """
    if flat.grad is None and flat in _VECTORS:
        raise ValueError(
            "optimizer.zero_grad() has removed the gradient of this vector of flatten_parameters, so that no step "
            "changes it: call parameters.grad.zero_() instead"
        )


def load_flat(flat: Tensor, values: Tensor | Rounded) -> None:
    """Copies `values` ``[N]`` into `flat` ``[N]`` in place, and thereby into its module.

    Raises:
        ValueError: The shapes or types differ, so the values are of another network.
    """
    if not isinstance(values, Tensor):
        rounded, positions, exact = values
        values = rounded.to(flat.dtype)
        values[positions] = exact
    if values.shape != flat.shape or values.dtype != flat.dtype:
        raise ValueError(
            f"the network has {flat.numel()} parameters ({flat.dtype}), but received "
            f"{list(values.shape)} ({values.dtype}): both sides need the same environment and network"
        )
    with torch.no_grad():
        flat.copy_(values)
