"""`spec.stop`, `spec.checkpoint` and `spec.runPolicy`: when a run ends, what it leaves, what it survives."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from rltraining_api import patterns
from rltraining_api.base import ApiModel, OneOf, Rule, refusal
from rltraining_api.evaluation import EvaluationReturn, NoImprovement
from rltraining_api.failure_policy import PodFailurePolicy
from rltraining_api.fields import Count, CountOrZero, FreeForm, ObjectName, Return, Steps, Uri
from rltraining_api.roles import check_metadata
from rltraining_api.scheduling import SchedulingPolicy


class MeanReturn(ApiModel):
    """Stop at a mean of returns."""

    at_least: Return
    """The mean undiscounted return to reach."""
    episodes: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Newest training episodes over which the mean goes; there must be as many. Each sampler's count in the order in which they
    began, see `status.progress.meanReturn`."""


class SmoothedReturn(ApiModel):
    """Stop at a smoothed return, 0.9 x old + 0.1 x new after each episode (as in the A3C literature)."""

    at_least: Return
    """The smoothed undiscounted return to reach."""
    times: Annotated[int, Field(ge=1, le=100_000)] = 5
    """Episodes in a row after which it must be reached."""


SOME_STOP_RULE = (
    "at least one rule is needed: environmentSteps, meanReturn, smoothedReturn, evaluation, noImprovement "
    "or seconds"
)
ONE_PLACE = "uri and volume exclude each other: leave one out"


class Stop(ApiModel):
    """When a run is done. At least one rule; the one met first ends the run, which has then succeeded."""

    environment_steps: Steps | None = None
    """Environment steps that the learner has used, over all samplers."""
    mean_return: MeanReturn | None = None
    """Mean return of the newest training episodes."""
    smoothed_return: SmoothedReturn | None = None
    """Exponentially smoothed return of training episodes."""
    evaluation: EvaluationReturn | None = None
    """Mean return of an evaluation. Needs `spec.evaluation`."""
    no_improvement: NoImprovement | None = None
    """Consecutive evaluations without an improvement over the best. Needs `spec.evaluation`."""
    seconds: Count | None = None
    """Seconds of training, over all restarts, without those before the first sampler delivers."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.environmentSteps) || has(self.meanReturn) "
            "|| has(self.smoothedReturn) || has(self.evaluation) || has(self.noImprovement) || has(self.seconds)",
            SOME_STOP_RULE,
        ),
    )

    @model_validator(mode="after")
    def _some_rule(self) -> Self:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise refusal(SOME_STOP_RULE)
        return self


class ClaimTemplate(ApiModel):
    """A PersistentVolumeClaim to make with the job; it is deleted with the job."""

    metadata: FreeForm = Field(default_factory=dict)
    """Labels and annotations to add to the claim."""
    spec: FreeForm
    """A PersistentVolumeClaimSpec: accessModes, resources, storageClassName."""

    @field_validator("metadata", mode="after")
    @classmethod
    def _metadata_is_text(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        return check_metadata(metadata)


class CheckpointVolume(OneOf):
    """A volume for checkpoints: exactly one of a claim that exists and one to make."""

    choices: ClassVar[tuple[str, ...]] = ("claim_name", "claim_template")
    noun: ClassVar[str] = "claim"

    claim_name: ObjectName | None = None
    """A PersistentVolumeClaim that exists in the job's namespace."""
    claim_template: ClaimTemplate | None = None
    """A PersistentVolumeClaim to make with the job."""


class Checkpoint(ApiModel):
    """How often the whole state is saved, and where. Without `uri` and `volume` it lies in the learner's pod:
    it then survives a restart of the container, but not the loss of the pod."""

    every_seconds: Count = 60
    """Seconds between checkpoints; one more is made when the run ends."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """Newest checkpoints that are kept."""
    uri: Uri | None = None
    """Where fsspec writes: `s3://bucket/path`, `gs://bucket/path`, `file:///path`. Checkpoints and the final policy go to
    a folder there that is named like the job; a job of that name made anew goes on from it. Not together with
    `volume`."""
    volume: CheckpointVolume | None = None
    """A volume to write to. Not together with `uri`."""
    resume_from: Uri | None = None
    """A checkpoint, or a directory of them (then the newest complete one), to start from."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (Rule("!(has(self.uri) && has(self.volume))", ONE_PLACE),)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.uri is not None and self.volume is not None:
            raise refusal(ONE_PLACE)
        return self


class RunPolicy(ApiModel):
    """Suspension, limits and clean-up, with the meanings of a batch/v1 Job. May change while the job runs,
    but for `managedBy` and `schedulingPolicy`."""

    suspend: bool = False
    """Hold the job: its pods are deleted (after a last checkpoint), startTime is cleared; resuming goes on
    from there."""
    backoff_limit: CountOrZero = 6
    """Failures that are healed; with one more the job fails. Disruptions (evictions, lost nodes, kills from outside)
    do not count, but for those that go on and on while training makes no progress."""
    active_deadline_seconds: Count | None = None
    """Seconds after startTime at which the job fails; suspension resets them."""
    ttl_seconds_after_finished: CountOrZero | None = None
    """Seconds after the end at which the job is deleted, with all that belongs to it. Without, it stays."""
    clean_pod_policy: Literal["All", "Running", "None"] = "Running"
    """Which pods are deleted when the job ends: all, those that still run, or none."""
    managed_by: Annotated[str, Field(max_length=63, pattern=patterns.MANAGED_BY)] | None = None
    """The controller in charge, as `domain/path`. With a value other than rltraining.dev/operator the
    operator leaves the job alone. Immutable."""
    pod_failure_policy: PodFailurePolicy | None = None
    """Rules that come before the operator's own judgement of a pod's end."""
    scheduling_policy: SchedulingPolicy | None = None
    """Queueing, and starting pods together; without, each pod is scheduled by itself. Immutable."""
