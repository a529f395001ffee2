"""Checks for the packages of the extra `local`, with which this machine can train and play."""

from __future__ import annotations

from importlib.util import find_spec

from rltraining.errors import UsageError

MODULES = ("rltraining_trainer", "matplotlib", "imageio")
REMEDY = "pip install 'rltraining[local]'"


def require_local(what: str) -> None:
    """Raises UsageError, which names the remedy, if a package of the extra is missing. `what`: needs it."""
    missing = [module for module in MODULES if find_spec(module) is None]
    if missing:
        raise UsageError(f"{what} needs packages that are not installed ({', '.join(missing)}): {REMEDY}")
