"""`spec.stop`, `spec.checkpoint` and `spec.runPolicy`: when a run ends, what it stores, and which
failures it survives."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rltraining_api import patterns
from rltraining_api.base import ApiModel, OneOf, Rule, refusal
from rltraining_api.evaluation import EvaluationReturn, NoImprovement
from rltraining_api.failure_policy import PodFailurePolicy
from rltraining_api.fields import Count, CountOrZero, FreeForm, ObjectName, Return, Steps, Uri
from rltraining_api.roles import TemplateMetadata
from rltraining_api.scheduling import SchedulingPolicy


class MeanReturn(ApiModel):
    """Stop at a mean of returns."""

    at_least: Return
    """The mean undiscounted return to reach."""
    episodes: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Number of newest training episodes in the mean, which must all have ended. Episodes of a
    sampler count in the order in which they started, see `status.progress.meanReturn`."""


class SmoothedReturn(ApiModel):
    """Stop at a smoothed return, 0.9 x old + 0.1 x new after each episode (as in the A3C literature)."""

    at_least: Return
    """The smoothed undiscounted return to reach."""
    times: Annotated[int, Field(ge=1, le=100_000)] = 5
    """Number of consecutive episodes after which the smoothed return must be reached."""


SOME_STOP_RULE = (
    "at least one rule is needed: environmentSteps, meanReturn, smoothedReturn, evaluation, noImprovement "
    "or seconds"
)
ONE_PLACE = "uri and volume exclude each other: leave one out"


class Stop(ApiModel):
    """When a run is done. At least one rule is needed. The first rule that is met ends the run
    successfully."""

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
    """Seconds of training, over all restarts, excluding the time before the first sampler sends
    data."""

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
    """A PersistentVolumeClaim that is created and deleted with the job."""

    metadata: TemplateMetadata = Field(default_factory=dict)
    """Labels and annotations to add to the claim."""
    spec: FreeForm
    """A PersistentVolumeClaimSpec: accessModes, resources, storageClassName."""


class CheckpointVolume(OneOf):
    """A volume for checkpoints: exactly one of an existing claim and a claim to create."""

    choices: ClassVar[tuple[str, ...]] = ("claim_name", "claim_template")
    noun: ClassVar[str] = "claim"

    claim_name: ObjectName | None = None
    """An existing PersistentVolumeClaim in the job's namespace."""
    claim_template: ClaimTemplate | None = None
    """A PersistentVolumeClaim to create with the job."""


class Checkpoint(ApiModel):
    """How often the training state is saved, and where. Without `uri` and `volume` the state is
    stored in the learner's pod, and survives a restart of the container but not the loss of the
    pod."""

    every_seconds: Count = 60
    """Seconds between checkpoints. A last checkpoint is saved when the run ends. May change while
    the job runs."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of newest checkpoints to keep. May change while the job runs: older checkpoints are
    deleted when the next one is saved."""
    uri: Uri | None = None
    """Location to write to, as fsspec reads it: `s3://bucket/path`, `gs://bucket/path`,
    `file:///path`. Checkpoints and the final policy are stored there in a folder with the job's
    name. A new job with the same name resumes from this folder. Not together with `volume`.
    Immutable."""
    volume: CheckpointVolume | None = None
    """A volume to write to. Not together with `uri`. Immutable."""
    resume_from: Uri | None = None
    """A checkpoint to start from, or a directory of checkpoints, of which the newest complete one
    is used. Immutable."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (Rule("!(has(self.uri) && has(self.volume))", ONE_PLACE),)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.uri is not None and self.volume is not None:
            raise refusal(ONE_PLACE)
        return self


Encryption = Literal["None", "TLS"]
LearnerEviction = Literal["Allow", "Refuse"]


class RunPolicy(ApiModel):
    """Suspension, limits and clean-up, with the meanings of a batch/v1 Job. May change while the
    job runs, except `managedBy` and `schedulingPolicy`."""

    suspend: bool = False
    """Suspend the job: its pods are deleted after a last checkpoint, and startTime is cleared. A
    resumed job continues from this checkpoint if `checkpoint.volume` or `checkpoint.uri` is set;
    otherwise training starts from the beginning."""
    backoff_limit: CountOrZero = 6
    """Failures after which processes are restarted; one more failure fails the job. Disruptions
    (evictions, lost nodes, kills from outside) do not count, unless they repeat while training
    makes no progress."""
    active_deadline_seconds: Count | None = None
    """Seconds after startTime at which the job fails. Suspension resets the time."""
    ttl_seconds_after_finished: CountOrZero | None = None
    """Seconds after the end at which the job and its dependent objects are deleted. Default:
    never."""
    clean_pod_policy: Literal["All", "Running", "None"] = "Running"
    """Which pods are deleted when the job ends: all pods, the running pods, or none."""
    managed_by: Annotated[str, Field(max_length=63, pattern=patterns.MANAGED_BY)] | None = None
    """The controller in charge, as `domain/path`. With a value other than rltraining.dev/operator the
    operator leaves the job alone. Immutable."""
    learner_eviction: LearnerEviction | None = None
    """Whether the drain of a node may evict learners and replay pods. An evicted learner writes a checkpoint
    first, and is created again on another node. It resumes from this checkpoint if
    `checkpoint.volume` or `checkpoint.uri` is set; otherwise training starts from the beginning.
    An evicted replay pod loses its memory, unless `replay.checkpoint` saves it. With Refuse a drain
    waits until the job is over. Samplers may always be evicted, also those with a shard of the
    replay memory. Default: as set at the operator's installation,
    which is Allow by default."""
    pod_failure_policy: PodFailurePolicy | None = None
    """Rules that override the operator's classification of failures."""
    scheduling_policy: SchedulingPolicy | None = None
    """Queueing, and starting pods together. Default: each pod is scheduled separately.
    Immutable."""
