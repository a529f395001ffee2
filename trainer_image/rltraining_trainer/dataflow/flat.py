"""All parameters of a module as one flat vector: read it, send it and step it in one operation."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def flatten_parameters(module: nn.Module) -> Tensor:
    """Move all parameters of `module` into one vector and make them views of it.

    Returns:
        The vector, float32 [N], a leaf that an optimizer takes as its only parameter. Its ``grad``, zero to
        begin with, is one vector too: ``backward`` adds into it, since every trainable parameter's ``grad``
        is a view.

    Clear gradients with ``flat.grad.zero_()``; ``zero_grad(set_to_none=True)`` would cut the views off.
    Frozen parameters are in the vector (a copy of the policy needs them) with a gradient of zero. Buffers are
    not in it: they are not learned by gradient, and a policy that needs some must send them itself.

    Raises:
        ValueError: a parameter is not float32, or there is none.
    """
    parameters = dict(module.named_parameters())
    if not parameters:
        raise ValueError(f"{type(module).__name__} has no parameters to train")
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32:
            raise ValueError(f"parameter {name} is {parameter.dtype}: only float32 can be trained here")
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters.values()])
    gradient = torch.zeros_like(flat)
    start = 0
    for parameter in parameters.values():
        stop = start + parameter.numel()
        parameter.data = flat[start:stop].view(parameter.shape)
        parameter.grad = gradient[start:stop].view(parameter.shape) if parameter.requires_grad else None
        start = stop
    flat.requires_grad_()
    flat.grad = gradient
    return flat


def load_flat(flat: Tensor, values: Tensor) -> None:
    """Copy `values` [N] into `flat` [N] in place, and so into the module it belongs to.

    Raises:
        ValueError: the shapes or types differ, so the values come from another network.
    """
    if values.shape != flat.shape or values.dtype != flat.dtype:
        raise ValueError(
            f"the network has {flat.numel()} parameters ({flat.dtype}), but {list(values.shape)} "
            f"({values.dtype}) came: both sides need the same environment and network"
        )
    with torch.no_grad():
        flat.copy_(values)
