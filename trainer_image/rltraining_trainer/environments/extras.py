"""Registers environments of optional packages and names the extra that a package needs."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from rltraining_trainer.errors import BadConfiguration, install_remedy

EXTRAS = {"ale_py": "atari", "Box2D": "box2d", "minigrid": "minigrid", "mujoco": "mujoco"}
"""Maps a module that an environment imports to the extra of rltraining-trainer that installs it."""

REGISTERED_BY = {"ALE/": "ale_py", "BabyAI-": "minigrid", "MiniGrid-": "minigrid"}
"""Maps the prefix of an id to the module that registers it, which users then need not name."""

IMPORTED_BY = {"gymnasium.envs.box2d": "Box2D", "gymnasium.envs.mujoco": "mujoco"}
"""Maps a package of gymnasium to the module that its environments import when they are made. Gymnasium
registers them also without that module."""


class NotInstalled(BadConfiguration):
    """A package that an environment needs may not be installed here."""


def register_extra(id: str) -> None:
    """Imports the package that registers ``id``, if the id has a prefix in ``REGISTERED_BY``.

    Raises:
        ModuleNotFoundError: The package is not installed.
    """
    for prefix, module in REGISTERED_BY.items():
        if id.startswith(prefix) and id not in gym.registry:
            importlib.import_module(module)


def check_imports(registered: EnvSpec, id: str) -> None:
    """Checks that the module that an environment of gymnasium imports is installed. Does not import it.

    Raises:
        NotInstalled: The module is missing. Names the extra.
    """
    entry_point = registered.entry_point
    package = entry_point.rpartition(".")[0] if isinstance(entry_point, str) else ""
    module = IMPORTED_BY.get(package)
    if module is not None and not _is_installed(module):
        raise _not_installed(id, module)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # None in sys.modules
        return False


def _not_installed(id: str, module: str) -> NotInstalled:
    return NotInstalled(
        f"spec.environment.id: {id!r} needs the package {module}, which is not installed: "
        f"{install_remedy(EXTRAS[module])}"
    )


def missing_extra(id: str, error: BaseException) -> NotInstalled | None:
    """Returns an error that names the missing extra, or None if ``error`` has another cause."""
    # Gymnasium raises its own exception from the ImportError, so follow the chain of causes.
    cause: BaseException | None = error
    while cause is not None:
        module = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
        if module in EXTRAS:
            return _not_installed(id, module)
        cause = cause.__cause__
    return None
