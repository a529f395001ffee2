"""Registers environments of optional packages and names the extra that a package needs."""

from __future__ import annotations

import importlib

import gymnasium as gym

from rltraining_trainer.errors import BadConfiguration

EXTRAS = {"ale_py": "atari", "Box2D": "box2d", "minigrid": "minigrid", "mujoco": "mujoco"}
"""Maps a module that an environment imports to the extra of rltraining-trainer that installs it."""

REGISTERED_BY = {"ALE/": "ale_py", "BabyAI-": "minigrid", "MiniGrid-": "minigrid"}
"""Maps the prefix of an id to the module that registers it, which users then need not name."""


def register_extra(id: str) -> None:
    """Imports the package that registers ``id``, if the id has a prefix in ``REGISTERED_BY``.

    Raises:
        ModuleNotFoundError: The package is not installed.
    """
    for prefix, module in REGISTERED_BY.items():
        if id.startswith(prefix) and id not in gym.registry:
            importlib.import_module(module)


def missing_extra(id: str, error: BaseException) -> BadConfiguration | None:
    """Returns an error that names the missing extra, or None if ``error`` has another cause."""
    # Gymnasium raises its own exception from the ImportError, so follow the chain of causes.
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
