"""The state from which a learner starts: its newest checkpoint, ``spec.checkpoint.resumeFrom``, or a fresh state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rltraining_api.contract import Warning

from rltraining_trainer.checkpoint import CheckpointStore, load
from rltraining_trainer.errors import BadConfiguration, TrainerError, user_code_error
from rltraining_trainer.user_trace import user_trace


@dataclass(frozen=True)
class Start:
    """The start of a learner. ``state`` is None for a fresh start. ``warnings`` name damaged checkpoints."""

    state: dict[str, Any] | None
    uri: str
    warnings: tuple[Warning, ...]


def find_start(store: CheckpointStore, resume_from: str | None) -> Start:
    """Returns where to start. The run's checkpoints precede ``resume_from``, so that a restarted learner continues.

    Raises:
        BadConfiguration: there is no checkpoint at ``resume_from``.
        CheckpointError: storage cannot be read, so it is unknown whether there is a checkpoint.
    """
    loaded = store.load_newest()
    skipped = store.skipped
    if loaded is None and resume_from is not None:
        loaded = load(resume_from)
        skipped += loaded.skipped
    warnings = tuple(Warning(reason="CheckpointSkipped", message=sentence) for sentence in skipped)
    if loaded is None:
        return Start(None, "", warnings)
    return Start(loaded.state, loaded.uri, warnings)


def not_loaded(uri: str, error: Exception) -> TrainerError:
    """Returns the error of a job that cannot load the state in this checkpoint."""
    if user_trace(error)[0]:  # raised by set_state or load_state_dict of a user's class
        return user_code_error(f"loading checkpoint {uri}, which may be of another job,", error)
    return BadConfiguration(f"checkpoint {uri} is of another job: {error}")
