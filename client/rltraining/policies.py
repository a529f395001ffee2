"""Opening a trained policy. Everything that imports torch is behind this module."""

from __future__ import annotations

import sys
from pathlib import Path

from rltraining_trainer.errors import TrainerError
from rltraining_trainer.policy import Policy

from rltraining.errors import UsageError
from rltraining.jobfile import load
from rltraining.workdir import JOB_FILE, holds_run


def open_policy(uri: str) -> Policy:
    """The policy in a folder, or at a URI; user code that lay beside the run's manifest is found again.

    Raises UsageError.
    """
    _find_user_code(Path(uri).parent)
    try:
        return Policy.load(uri)
    except TrainerError as error:
        raise UsageError(str(error)) from None


def _find_user_code(run: Path) -> None:
    folder = load(str(run / JOB_FILE)).code_folder if holds_run(run) else None
    if folder is not None:
        sys.path.append(str(folder))
