"""Opening a trained policy. Everything that imports torch is behind this module."""

from __future__ import annotations

import sys
from pathlib import Path

from rltraining_trainer.errors import TrainerError
from rltraining_trainer.policy import Policy

from rltraining.errors import UsageError
from rltraining.jobfile import load
from rltraining.workdir import JOB_FILE, holds_run

USER_CODE = (
    "user code is found beside the manifest while the policy lies in its run's folder; "
    "otherwise put it on PYTHONPATH"
)


def in_run(uri: str) -> str:
    """The policy that is meant: of a run's folder, the one in it."""
    return str(Path(uri) / "policy") if holds_run(Path(uri)) else uri


def open_policy(uri: str) -> Policy:
    """The policy in a folder or at a URI, or of the run in a folder; user code that lay beside the run's manifest is
    found again. Raises UsageError.
    """
    uri = in_run(uri)
    _find_user_code(Path(uri).parent)
    try:
        return Policy.load(uri)
    except TrainerError as error:
        raise UsageError(explained(error)) from None


def explained(error: TrainerError) -> str:
    """What the trainer says; of a module that was not found its remedy, instead of the traceback."""
    if not isinstance(error.__cause__, ModuleNotFoundError):
        return str(error)
    return f"{str(error).splitlines()[0]}: {USER_CODE}"


def _find_user_code(run: Path) -> None:
    folder = load(str(run / JOB_FILE)).code_folder if holds_run(run) else None
    if folder is not None:
        sys.path.append(str(folder))
