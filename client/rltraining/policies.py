"""Opening a trained policy. Everything that imports torch is behind this module."""

from __future__ import annotations

import sys
from pathlib import Path

from rltraining_trainer.errors import TrainerError
from rltraining_trainer.policy import Policy

from rltraining.errors import UsageError
from rltraining.jobfile import load
from rltraining.workdir import JOB_FILE


def open_policy(uri: str) -> Policy:
    """The policy in a folder, or at a URI; user code that lay beside the run's manifest is found again.

    Raises UsageError.
    """
    _find_user_code(Path(uri).parent / JOB_FILE)
    try:
        return Policy.load(uri)
    except TrainerError as error:
        raise UsageError(str(error)) from None


def _find_user_code(job_file: Path) -> None:
    if not job_file.is_file():
        return
    folder = load(str(job_file)).code_folder
    if folder is not None:
        sys.path.append(str(folder))
