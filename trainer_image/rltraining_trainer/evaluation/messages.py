"""What the learner and its evaluator exchange: a line of JSON each, over a socket."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict
from rltraining_api.evaluation import EvaluationResult

LINE_MAX = 1 << 20
"""Bytes of a line. A longer one is an error: user code runs in the evaluator."""


class Order(BaseModel):
    """Play a policy."""

    model_config = ConfigDict(frozen=True)

    folder: str
    """Holds the policy: weights and description. A better policy gets its program there."""
    episodes: int
    seed: int
    num_envs: int
    seconds: float
    """Seconds of training when the policy was taken."""
    to_beat: float | None
    """Mean return of the best policy so far."""


class Answer(BaseModel):
    """What an order came to: a result, or an error that ends the job."""

    model_config = ConfigDict(frozen=True)

    result: EvaluationResult | None = None
    is_best: bool = False
    """The result beats `to_beat`, and the folder holds all files of the policy."""
    error: Literal["", "BadConfiguration", "UserCodeError"] = ""
    """Name of the TrainerError that was raised."""
    message: str = ""
    """Its sentence, and the traceback of user code."""
