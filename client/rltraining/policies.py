"""Opens a trained policy. All imports of torch are in this module."""

from __future__ import annotations

import sys
from pathlib import Path

from rltraining_trainer.errors import TrainerError
from rltraining_trainer.policy import Policy, UntrustedCode

from rltraining.errors import UsageError
from rltraining.jobfile import load
from rltraining.workdir import JOB_FILE, holds_run

USER_CODE = (
    "with --trust-code, user code is found beside the manifest while the policy is in its run's folder; "
    "otherwise put it on PYTHONPATH"
)


class UntrustedPolicyError(UsageError):
    """A policy needs user code, and the caller has not trusted it."""

    def __init__(self, error: UntrustedCode) -> None:
        super().__init__(str(error))
        self.needs = error.needs
        """The code, as a clause: `its network is code of …`."""


def in_run(uri: str) -> str:
    """Returns the policy of a run's folder, or the URI itself. Raises UsageError if the URI is empty."""
    if not uri:
        raise UsageError("POLICY is empty: name a policy or the folder of a run, such as runs/first")
    return str(Path(uri) / "policy") if holds_run(Path(uri)) else uri


def open_policy(uri: str, *, trust_code: bool, to_play: bool = True) -> Policy:
    """Opens the policy in a folder or at a URI, or of the run in a folder.

    Args:
        trust_code: Whether user code may run. The folder of the run's manifest is then added to
            Python's module path.
        to_play: Whether the policy's environment is required, too.

    Raises UsageError, of which UntrustedPolicyError is a subclass.
    """
    uri = in_run(uri)
    if trust_code:
        _find_user_code(Path(uri))
    try:
        policy = Policy.load(uri, trust_code=trust_code)
        if to_play:
            policy.check_environment()
    except UntrustedCode as error:
        raise UntrustedPolicyError(error) from None
    except TrainerError as error:
        raise UsageError(explained(error)) from None
    return policy


def explained(error: TrainerError) -> str:
    """Returns the trainer's message. For a missing module, returns the remedy instead of the
    traceback."""
    if not isinstance(error.__cause__, ModuleNotFoundError):
        return str(error)
    return f"{str(error).splitlines()[0]}: {USER_CODE}"


def _find_user_code(policy: Path) -> None:
    """Makes user code of the policy's run importable. The policy is in `RUN/policy[/best]`."""
    run = next((folder for folder in list(policy.parents)[:2] if holds_run(folder)), None)
    folder = load(str(run / JOB_FILE)).code_folder if run is not None else None
    if folder is not None:
        sys.path.append(str(folder))
