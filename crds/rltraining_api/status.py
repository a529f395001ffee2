"""`status` of an RLTrainingJob: written by the operator only, rebuilt whole at each pass."""

from __future__ import annotations

from datetime import datetime

from rltraining_api.base import ApiModel


class Progress(ApiModel):
    """How far training has come. Counters never go back further than the newest checkpoint."""

    environment_steps: int = 0
    """Environment steps whose unrolls the learner has used."""
    episodes: int = 0
    """Episodes that ended within those steps."""
    updates: int = 0
    """Optimizer steps."""
    model_version: int = 0
    """Version of the newest parameters samplers can have."""
    mean_return: float | None = None
    """Mean undiscounted return of the last `stop.meanReturn.episodes` (default 100) training episodes."""
    steps_per_second: float | None = None
    """Environment steps a second, over the last seconds."""
    percent: float | None = None
    """How much of `stop` is reached, 0 to 100: the largest of its rules that can be told in per cent."""
    policy_lag: float | None = None
    """Mean age, in parameter versions, of the policy that made the data when the learner used it."""


class CheckpointStatus(ApiModel):
    """The newest complete checkpoint."""

    uri: str
    step: int
    """Environment steps at which it was taken."""
    time: datetime
