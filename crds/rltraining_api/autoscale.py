"""`spec.sampler.autoscale` and `status.autoscale`: a number of samplers that follows the learner."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rltraining_api.base import ApiModel, Rule, refusal
from rltraining_api.fields import CountOrZero, Measured, Text
from rltraining_api.names import SAMPLERS_MAX

if TYPE_CHECKING:
    from rltraining_api.job import JobSpec

Samplers = Annotated[int, Field(ge=1, le=SAMPLERS_MAX)]
WAIT_PERCENT_MAX = 15.0
"""If the learner waits for a larger percentage of the time, it has too few samplers."""
MIN_AT_MOST_MAX = "autoscale.min must be at most autoscale.max"
NEEDS_ASYNC = (
    "sampler.autoscale is not for ppo, and with a3c or a2c needs aggregate.mode Async and a number as aggregate.count, since "
    "otherwise learner and samplers wait for each other: leave autoscale out, or set both"
)
NEEDS_OTHER_PLACEMENT = (
    "sampler.autoscale is not for replay.placement Samplers, where a removed sampler takes its replay shard along: leave "
    "autoscale out, or set replay.placement to Learner or Dedicated"
)


class Autoscale(ApiModel):
    """Bounds within which the operator sets the number of samplers: the smallest number that keeps the
    learner busy."""

    min: Samplers = 1
    """Smallest number of samplers."""
    max: Samplers
    """Largest number of samplers."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (Rule("self.min <= self.max", MIN_AT_MOST_MAX),)

    @model_validator(mode="after")
    def _min_at_most_max(self) -> Self:
        if self.min > self.max:
            raise refusal(f"{MIN_AT_MOST_MAX}, got {self.min} and {self.max}")
        return self

    def problem(self, spec: JobSpec) -> str | None:
        """Returns why the number of samplers cannot follow the learner of a job with this spec, or None."""
        aggregate = getattr(spec.algorithm.parameters, "aggregate", None)
        if aggregate is not None and (aggregate.mode == "Sync" or aggregate.count is None):
            return NEEDS_ASYNC
        replay = spec.algorithm.replay
        return NEEDS_OTHER_PLACEMENT if replay is not None and replay.placement == "Samplers" else None


def autoscale_rules(replay_is_in_samplers: str) -> Iterator[Rule]:
    """Yields the rules of `Autoscale.problem`, for an API server."""
    unset = "!has(self.sampler) || !has(self.sampler.autoscale)"
    yield Rule(f"{unset} || !has(self.algorithm.ppo)", NEEDS_ASYNC)
    for path in ("self.algorithm.a3c", "self.algorithm.a2c"):
        fits = f"{path}.aggregate.mode == 'Async' && has({path}.aggregate.count)"
        yield Rule(f"{unset} || !has({path}) || ({fits})", NEEDS_ASYNC)
    yield Rule(f"{unset} || !({replay_is_in_samplers})", NEEDS_OTHER_PLACEMENT)


class AutoscaleWindow(ApiModel):
    """For the operator only: the means of the learner's reports since the number of ready samplers
    last changed, or since the last decision."""

    since: datetime
    """When the window began."""
    ready: CountOrZero = 0
    """Ready samplers."""
    reports: CountOrZero = 0
    """Number of reports in the means."""
    wait_percent: Measured = None
    """Mean of `progress.learnerWaitPercent`."""
    steps_per_second: Measured = None
    """Mean of `progress.stepsPerSecond`."""


class AutoscaleSearch(ApiModel):
    """For the operator only: what earlier decisions have shown, so that no number is tried again and
    again. 0: unknown."""

    before: CountOrZero = 0
    """The number before the last change, if that change is still to be judged."""
    steps_per_second_needed: Measured = None
    """Steps per second that the additional samplers must bring to be kept."""
    too_few: CountOrZero = 0
    """The largest number that was too few."""
    enough: CountOrZero = 0
    """A number with which the learner was as busy as with a larger one."""
    learned: datetime | None = None
    """When `tooFew` or `enough` was last set. Both are forgotten after a while."""
    steps_per_second: Measured = None
    """Steps per second when the present number was first measured."""


class AutoscaleStatus(ApiModel):
    """The number of samplers of a job with `sampler.autoscale`."""

    target: Samplers
    """The number of samplers that the job should have now. It replaces `spec.sampler.replicas`."""
    state: Literal["Active", "Overridden"] = "Active"
    """Overridden: `spec.sampler.replicas` was changed. That number holds until `sampler.autoscale` is
    changed, or is removed and set again."""
    message: Text = ""
    """Why `target` has its value, in one sentence."""
    observed_replicas: Samplers
    """`spec.sampler.replicas` at the last decision. A different value overrides `target`."""
    observed_min: Samplers
    """`spec.sampler.autoscale.min` at the last decision. A different value makes the state Active."""
    observed_max: Samplers
    """`spec.sampler.autoscale.max` at the last decision. A different value makes the state Active."""
    window: AutoscaleWindow
    """For the operator only: the present measurement."""
    search: AutoscaleSearch = Field(default_factory=AutoscaleSearch)
    """For the operator only: the results of earlier decisions."""
