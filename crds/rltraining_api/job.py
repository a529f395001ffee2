"""`RLTrainingJob`: one distributed reinforcement-learning run. The parts of its spec are in the modules
beside."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from rltraining_api import patterns
from rltraining_api.algorithms import Algorithm
from rltraining_api.base import ApiModel, refusal
from rltraining_api.environment import Environment
from rltraining_api.lifecycle import Checkpoint, RunPolicy, Stop
from rltraining_api.names import API_VERSION, KIND, NAME_MAX
from rltraining_api.network import Network
from rltraining_api.roles import Code, Image, LearnerRole, SamplerRole
from rltraining_api.status import Status


class Metadata(ApiModel):
    """The part of `metadata` that this system reads; the rest is Kubernetes' own and passes unread."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(max_length=NAME_MAX, pattern=patterns.LABEL)
    """An RFC 1035 label; shorter than Kubernetes asks, because children add `-sampler-9999`."""
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class JobSpec(ApiModel):
    """What to train, on what, until when. `sampler.replicas`, `stop` and `runPolicy` (but not
    `runPolicy.managedBy`) may change while the job runs; everything else is fixed when the job is made."""

    algorithm: Algorithm
    """Exactly one algorithm, with its hyperparameters. Immutable."""
    environment: Environment
    """What is trained on. Immutable."""
    network: Network = Field(default_factory=Network.default)
    """The network that holds policy and value. Immutable."""
    learner: LearnerRole = Field(default_factory=LearnerRole)
    """The pods that update the parameters. Immutable."""
    sampler: SamplerRole = Field(default_factory=SamplerRole)
    """The pods that step environments. Only `replicas` may change."""
    image: Image | None = None
    """Trainer image, instead of the one that the operator is installed with. Immutable."""
    code: Code | None = None
    """User code that is not in the image. Immutable."""
    stop: Stop
    """When the run is done: the rule that is met first ends it, successfully. May change while the job runs.
    """
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    """How often the whole state is saved, and where. Immutable."""
    run_policy: RunPolicy = Field(default_factory=RunPolicy)
    """Suspension, limits and clean-up, with the meanings of a batch/v1 Job."""
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    """Seed of everything random; each sampler and environment derives its own from it. Immutable."""

    @model_validator(mode="after")
    def _schedule_has_an_end(self) -> Self:
        algorithm = self.algorithm.parameters
        if (
            getattr(algorithm, "learning_rate_schedule", None) == "Linear"
            and self.stop.environment_steps is None
        ):
            raise refusal(
                "learningRateSchedule Linear falls to 0 over stop.environmentSteps: "
                "set stop.environmentSteps, or use Constant"
            )
        return self


class RLTrainingJob(ApiModel):
    """A distributed reinforcement-learning run: a learner, samplers, and when to stop."""

    api_version: Literal["rltraining.dev/v1alpha1"] = API_VERSION
    kind: Literal["RLTrainingJob"] = KIND
    metadata: Metadata
    spec: JobSpec
    """What to train; written by the user."""
    status: Status = Field(default_factory=Status)
    """How it goes; written by the operator."""
