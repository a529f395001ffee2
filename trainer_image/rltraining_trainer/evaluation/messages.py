"""Messages between the learner and its evaluator: one line of JSON each, over a socket."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict
from rltraining_api.evaluation import EvaluationResult

LINE_MAX = 1 << 20
"""Maximum number of bytes in a line, enforced because the evaluator runs user code."""


class Order(BaseModel):
    """Orders the evaluation of a policy."""

    model_config = ConfigDict(frozen=True)

    folder: str
    """Contains the policy's weights and description. The evaluator may add its program."""
    episodes: int
    seed: int
    num_envs: int
    seconds: float
    """Seconds of training when the policy was taken."""
    to_beat: float | None
    """Mean return of the best policy so far."""


class Answer(BaseModel):
    """Reports the result of an order, or an error that ends the job."""

    model_config = ConfigDict(frozen=True)

    result: EvaluationResult | None = None
    is_best: bool = False
    """Whether the result exceeds `to_beat`. The folder then contains all files of the policy."""
    error: Literal["", "BadConfiguration", "UserCodeError"] = ""
    """Name of the TrainerError that was raised."""
    message: str = ""
    """The error's message, followed by the traceback of user code."""
