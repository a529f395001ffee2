"""`spec.evaluation`, the stop rules that look at evaluations, and what the status says of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field

from rltraining_api.base import ApiModel
from rltraining_api.fields import (
    CountOrZero,
    Measured,
    NotNegative,
    Return,
    Steps,
    StepsOrZero,
    StoredUri,
)


class Evaluation(ApiModel):
    """Evaluation while training goes on: a process beside the first learner plays whole episodes with the most likely
    actions, or the deterministic policy of ddpgApex, and the best policy is kept. Training does not wait for it."""

    every_steps: Steps
    """Environment steps from one evaluation to the next. What falls due while an evaluation is being played is merged
    into one evaluation of the newest policy, as soon as the first is over."""
    episodes: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Episodes of an evaluation (RLlib's `evaluation_duration`: 10; RL Baselines3 Zoo: 5; Machado et al. 2018 for Atari:
    100). At most `environment.numEnvs` are played at once."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    """Seed of the episodes; without, that of the job. Each evaluation derives its own from it, so that the best policy is
    not the one that suits a few starting states."""


class EvaluationReturn(ApiModel):
    """Stop at a mean return of evaluations."""

    at_least: Return
    """The mean undiscounted return of an evaluation to reach."""
    times: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Evaluations in a row that must reach it."""


class NoImprovement(ApiModel):
    """Stop when evaluations get no better."""

    evaluations: Annotated[int, Field(ge=1, le=100_000)]
    """Evaluations in a row without an improvement after which the run ends, successfully."""
    min_delta: NotNegative = 0.0
    """By how much the mean return must exceed the best to count as an improvement."""


class EvaluationResult(ApiModel):
    """What an evaluation came to. Returns are undiscounted."""

    environment_steps: StepsOrZero
    """Environment steps that the evaluated policy had learnt from."""
    seconds: Annotated[float, Field(ge=0)] = 0.0
    """Seconds of training by then, over all restarts."""
    episodes: CountOrZero = 0
    """Episodes played."""
    mean_return: Measured = None
    """Mean of their returns; none if it is not finite."""
    std_return: Measured = None
    """Standard deviation of their returns."""
    min_return: Measured = None
    """The lowest return."""
    max_return: Measured = None
    """The highest return."""
    mean_length: Measured = None
    """Mean length in environment steps."""
    time: AwareDatetime | None = None
    """When the last of its episodes ended."""


class EvaluationStatus(ApiModel):
    """The evaluations of a run so far. Counts go on when the learner restarts from a checkpoint."""

    count: StepsOrZero = 0
    """Evaluations that were completed."""
    merged: StepsOrZero = 0
    """Evaluations that fell due while another was being played, or could not be completed: a later one stands for
    them."""
    restarts: StepsOrZero = 0
    """Processes that were lost while they played an evaluation, which another one then repeated."""
    without_improvement: StepsOrZero = 0
    """Evaluations since the last improvement, as `stop.noImprovement` counts them."""
    last: EvaluationResult | None = None
    """The newest."""
    best: EvaluationResult | None = None
    """The one with the highest mean return whose policy is kept."""
    best_policy_uri: StoredUri | None = None
    """Where that policy lies."""
