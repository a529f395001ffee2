"""`spec.evaluation`, the stop rules that depend on evaluations, and `status.evaluation`."""

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
    """Evaluation during training: a child process of the first learner plays episodes with the most
    likely actions, and the best policy is stored. Training does not wait for evaluations."""

    every_steps: Steps
    """Environment steps between evaluations. Evaluations that become due during another one are
    merged into one evaluation of the latest policy when it ends."""
    episodes: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Number of episodes per evaluation, of which at most `environment.numEnvs` run in parallel
    (RLlib's `evaluation_duration`: 10; RL Baselines3 Zoo: 5; Machado et al. 2018 for Atari:
    100)."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    """Seed of the episodes. Default: the job's seed. Each evaluation derives a different seed from
    it, so that the best policy is not selected for a few initial states."""


class EvaluationReturn(ApiModel):
    """Stop at a mean return of evaluations."""

    at_least: Return
    """Mean undiscounted return that an evaluation must reach."""
    times: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Number of consecutive evaluations that must reach it."""


class NoImprovement(ApiModel):
    """Stop when evaluations no longer improve."""

    evaluations: Annotated[int, Field(ge=1, le=100_000)]
    """Number of consecutive evaluations without an improvement that end the run successfully."""
    min_delta: NotNegative = 0.0
    """Amount by which the mean return must exceed the best one to count as an improvement."""


class EvaluationResult(ApiModel):
    """The result of an evaluation. Returns are undiscounted."""

    environment_steps: StepsOrZero
    """Environment steps on which the evaluated policy was trained."""
    seconds: Annotated[float, Field(ge=0)] = 0.0
    """Training time of the policy in seconds, over all restarts."""
    episodes: CountOrZero = 0
    """Episodes played."""
    mean_return: Measured = None
    """Mean return. Absent if it is not finite."""
    std_return: Measured = None
    """Standard deviation of the returns."""
    min_return: Measured = None
    """The lowest return."""
    max_return: Measured = None
    """The highest return."""
    mean_length: Measured = None
    """Mean length in environment steps."""
    time: AwareDatetime | None = None
    """When the last episode ended."""


class EvaluationStatus(ApiModel):
    """The evaluations of a run so far. Counts continue after a restart from a checkpoint."""

    count: StepsOrZero = 0
    """Completed evaluations."""
    merged: StepsOrZero = 0
    """Evaluations that were due during another one or could not be completed, and that a later one
    replaced."""
    restarts: StepsOrZero = 0
    """Evaluator processes lost during an evaluation, which was then repeated."""
    without_improvement: StepsOrZero = 0
    """Evaluations since the last improvement by the rule of `stop.noImprovement`."""
    last: EvaluationResult | None = None
    """The latest evaluation."""
    best: EvaluationResult | None = None
    """The evaluation with the highest mean return. Its policy is stored."""
    best_policy_uri: StoredUri | None = None
    """Where the best policy is stored."""
