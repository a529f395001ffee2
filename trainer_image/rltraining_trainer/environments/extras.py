"""Environments whose packages are extras of this distribution: how their ids are registered, and what to install."""

from __future__ import annotations

import importlib

import gymnasium as gym

from rltraining_trainer.errors import BadConfiguration

EXTRAS = {"ale_py": "atari", "Box2D": "box2d", "minigrid": "minigrid", "mujoco": "mujoco"}
"""By the module that an environment imports: the extra of rltraining-trainer that installs its package."""

REGISTERED_BY = {"ALE/": "ale_py", "BabyAI-": "minigrid", "MiniGrid-": "minigrid"}
"""By the beginning of an id: the module that registers it when it is imported, which users need not name."""


def register_extra(id: str) -> None:
    """Imports the package that registers ``id``, where it is one of ``REGISTERED_BY``.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    for prefix, module in REGISTERED_BY.items():
        if id.startswith(prefix) and id not in gym.registry:
            importlib.import_module(module)


def missing_extra(id: str, error: BaseException) -> BadConfiguration | None:
    """If making environment ``id`` failed because the package of an extra is missing: the error that names the extra."""
    # Gymnasium raises its own error from the import's.
    cause: BaseException | None = error
    while cause is not None:
        module = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
        if module in EXTRAS:
            return BadConfiguration(
                f"spec.environment.id: {id!r} needs the package {module}, which is not installed: it comes with the "
                f"extra rltraining-trainer[{EXTRAS[module]}]"
            )
        cause = cause.__cause__
    return None
