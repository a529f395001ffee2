"""Checks for the packages of the extra `local`, with which this machine can train and play."""

from __future__ import annotations

from importlib.util import find_spec

from rltraining_api.extras import install_command

from rltraining.errors import UsageError

MODULES = ("rltraining_trainer", "matplotlib", "imageio", "PIL", "scipy")
REMEDY = install_command("local")
EXTRA_MODULES = {
    "atari": "ale_py",
    "box2d": "Box2D",
    "minigrid": "minigrid",
    "mlflow": "mlflow",
    "mujoco": "mujoco",
    "notebook": "pandas",
    "onnx": "onnxruntime",
    "s3": "s3fs",
    "wandb": "wandb",
}
"""For each further extra a module that it installs."""


def missing_modules() -> list[str]:
    """Returns the modules of the extra that are not installed."""
    return [module for module in MODULES if not is_installed(module)]


def is_installed(module: str) -> bool:
    """Returns whether a top-level module is installed. Does not import it."""
    return find_spec(module) is not None


def require_local(what: str) -> None:
    """Raises UsageError, which names the remedy, if a package of the extra is missing. `what`: needs it."""
    if missing := missing_modules():
        raise UsageError(f"{what} needs packages that are not installed ({', '.join(missing)}): {REMEDY}")
