"""The conditions that the first learner reports for the job's status."""

from __future__ import annotations

from typing import Literal

from rltraining_api.contract import ReportedCondition

from rltraining_trainer.checkpoint import CheckpointWriter


def checkpoint_conditions(checkpoints: CheckpointWriter, *, over: bool) -> tuple[ReportedCondition, ...]:
    """Returns the condition CheckpointHealthy, or nothing before the first write.

    Args:
        over: whether the run is over and its output was refused, so that training does not continue after a failure.
    """
    if failure := checkpoints.failure:
        error = checkpoints.error if over else None
        return (_condition("False", "CheckpointFailed", str(error or failure)),)
    if checkpoints.newest:
        newest = f"the newest is of step {checkpoints.newest.step:,}"
        return (_condition("True", "CheckpointWritten", newest),)
    return ()


def _condition(status: Literal["True", "False"], reason: str, message: str) -> ReportedCondition:
    return ReportedCondition(type="CheckpointHealthy", status=status, reason=reason, message=message)
