"""`spec.algorithm.entryPoint`: a user's own algorithm."""

from __future__ import annotations

from pydantic import Field

from rltraining_api.base import ApiModel
from rltraining_api.fields import FreeForm, Module


class UserAlgorithm(ApiModel):
    """A Python module, in the image or in `spec.code`, that defines `learner(world)` and
    `sampler(world)`. Each function is called in the pods of its role."""

    module: Module
    """Name of the module (`package.module`), which defines the functions `learner(world)` and `sampler(world)`."""
    parameters: FreeForm = Field(default_factory=dict)
    """Hyperparameters, passed to the module unchanged. The module must validate them."""
