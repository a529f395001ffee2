"""`spec.tracking`: the services that show the curves of many runs side by side."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rltraining_api import patterns
from rltraining_api.base import ApiModel, Rule, refusal
from rltraining_api.fields import ObjectName, Uri

SOME_TRACKER = "at least one tracker is needed: wandb or mlflow"

TrackedName = Annotated[str, Field(min_length=1, max_length=128, pattern=patterns.TRACKED_NAME)]


class Wandb(ApiModel):
    """A run of Weights & Biases. The API key is the environment variable `WANDB_API_KEY` of the
    first learner."""

    project: TrackedName
    """Project of the run. It is created if it does not exist."""
    entity: TrackedName | None = None
    """User or team that owns the project. Default: the default entity of the API key."""
    group: TrackedName | None = None
    """Group of the run within the project, for example of all seeds of an experiment."""
    mode: Literal["Online", "Offline"] | None = None
    """Offline needs no network: the points are written to `wandb/` beside `progress.jsonl`, and
    `wandb sync` uploads them later. Default: the environment variable `WANDB_MODE`, otherwise
    Online."""


class Mlflow(ApiModel):
    """A run of MLflow. Environment variables of the first learner such as
    `MLFLOW_TRACKING_TOKEN` contain the credentials."""

    experiment: Annotated[str, Field(min_length=1, max_length=253)]
    """Experiment of the run. It is created if it does not exist."""
    tracking_uri: Uri | None = None
    """Tracking server, `http://mlflow.mlops:5000`, or any other store of MLflow. Default: the
    environment variable `MLFLOW_TRACKING_URI`."""


class Tracking(ApiModel):
    """Trackers that receive each point of the curves while the job trains. Training does not wait
    for them, and continues if they fail."""

    wandb: Wandb | None = None
    """Weights & Biases. Needs the extra `wandb`."""
    mlflow: Mlflow | None = None
    """MLflow. Needs the extra `mlflow`."""
    secret_name: ObjectName | None = None
    """A Secret in the job's namespace. Its keys become environment variables of the first
    learner: `WANDB_API_KEY`, `MLFLOW_TRACKING_TOKEN`. On one machine the variables of your shell
    are used instead."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (Rule("has(self.wandb) || has(self.mlflow)", SOME_TRACKER),)

    @model_validator(mode="after")
    def _some_tracker(self) -> Self:
        if self.wandb is None and self.mlflow is None:
            raise refusal(SOME_TRACKER)
        return self
