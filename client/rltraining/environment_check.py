"""Looks up the environments of jobs in the packages that are installed here. Runs no user code."""

from __future__ import annotations

from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rltraining_api.job import JobSpec

from rltraining.errors import UsageError


class Findings(NamedTuple):
    """An error and a warning about an environment's id. Empty if there is none."""

    error: str = ""
    """A sentence, if there is no such environment."""
    warning: str = ""
    """A sentence, if the environment may be in a package that is not installed here."""


def check_environment(spec: JobSpec, folder: Path | None) -> Findings:
    """Looks up the environment's id, without importing modules of the user.

    `folder`: the manifest's, which may contain the environment's module.
    """
    module, has_module, _ = spec.environment.id.rpartition(":")
    if not has_module:
        return _check_registered(spec.environment.id)
    # Modules of spec.code are in a ConfigMap, or in a cluster.
    if spec.code is not None or _is_found(module.partition(".")[0], folder):
        return Findings()
    return Findings(
        warning=f"spec.environment.id: module {module} is neither installed here nor beside the manifest: "
        f"{spec.environment.id} was not checked"
    )


def check_module_here(spec: JobSpec, folder: Path | None) -> None:
    """Checks that the environment's module, if the id names one, can be found on this machine.

    Other ids are left to the processes of the run, since the import of gymnasium would delay each run.

    `folder`: the manifest's, which may contain the module.

    Raises UsageError.
    """
    module, has_module, _ = spec.environment.id.rpartition(":")
    if has_module and check_environment(spec, folder).warning:
        raise UsageError(
            f"spec.environment.id: module {module} is neither installed here nor beside the manifest: put its "
            "file there, or install its package"
        )


def _check_registered(id: str) -> Findings:
    """Looks up an id of an installed package. Finds nothing wrong where the trainer is not installed."""
    try:
        from rltraining_trainer.environments.extras import NotInstalled
        from rltraining_trainer.environments.lookup import check_registered
        from rltraining_trainer.errors import TrainerError
    except ImportError:
        return Findings()
    try:
        check_registered(id)
    except NotInstalled as error:
        return Findings(warning=str(error))
    except TrainerError as error:
        return Findings(error=str(error))
    return Findings()


def _is_found(module: str, folder: Path | None) -> bool:
    """Returns whether a top-level module is installed, or in the folder. Does not import it."""
    with suppress(ValueError):  # a module without a specification, such as __main__
        if find_spec(module) is not None:
            return True
    return folder is not None and PathFinder.find_spec(module, [str(folder)]) is not None
