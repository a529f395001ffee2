"""Messages between the learner and the process of a tracker: one line of JSON each, over a socket.

The learner sends an `Opening`, then any number of `Batch`, and receives an `Answer` to each batch.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from rltraining_api.tracking import Tracking

Kind = Literal["wandb", "mlflow"]
"""The field of `spec.tracking` that requests the tracker, which is also the name of its module."""
End = Literal["finished", "failed", "killed"]
"""How the run ended in this process. Killed: the process was asked to end, and the run may continue."""


class Opening(BaseModel):
    """Describes the tracked run. A run with the same id is continued."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    tracking: Tracking
    run_id: str
    name: str
    """Shown for the run."""
    folder: str
    """Where a tracker may write files."""
    config: dict[str, Any]
    """Hyperparameters: a nested object of JSON types."""


class Point(BaseModel):
    """Values of the curves at a step."""

    model_config = ConfigDict(frozen=True)

    step: int
    """Environment steps."""
    time: float
    """Unix time in seconds."""
    values: dict[str, float]
    """Finite values."""


class Batch(BaseModel):
    """Points to log, and the end of the run after them."""

    model_config = ConfigDict(frozen=True)

    points: tuple[Point, ...]
    end: End | None = None


class Answer(BaseModel):
    """Reports that a batch was logged, or why not."""

    model_config = ConfigDict(frozen=True)

    failure: str = ""
    """The error. Empty after a success."""
