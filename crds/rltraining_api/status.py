"""`status` of an RLTrainingJob: written by the operator only, rebuilt whole at each pass."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from rltraining_api.base import ApiModel
from rltraining_api.curve import Curve
from rltraining_api.evaluation import EvaluationStatus
from rltraining_api.fields import (
    ATOMIC_LIST,
    CountOrZero,
    Measured,
    Preset,
    Reason,
    ShortText,
    StepsOrZero,
    StoredUri,
    Text,
)
from rltraining_api.names import MEMBERS_MAX, Role

Phase = Literal["Pending", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed"]


class Progress(ApiModel):
    """How far training has come. Counters never go back further than the newest checkpoint."""

    environment_steps: StepsOrZero = 0
    """Environment steps whose unrolls the learner has used."""
    episodes: StepsOrZero = 0
    """Episodes that ended within those steps."""
    updates: StepsOrZero = 0
    """Optimizer steps."""
    model_version: StepsOrZero = 0
    """Version of the newest parameters samplers can have."""
    mean_return: Measured = None
    """Mean undiscounted return of the last `stop.meanReturn.episodes` (default 100) training
    episodes, or of fewer at first. Each sampler's episodes count in the order in which they began,
    once all earlier ones have ended, so that short episodes are not preferred."""
    best_return: Measured = None
    """Highest `meanReturn` so far over the full number of episodes."""
    steps_per_second: Measured = None
    """Environment steps a second, over the last seconds."""
    percent: Measured = None
    """How much of `stop` is reached, 0 to 100: the largest of its rules that can be told in per cent."""
    policy_lag: Measured = None
    """Mean age, in parameter versions, of the policy that made the data when the learner used it."""


class ReplayStatus(ApiModel):
    """The replay memory, all shards together. Counts go on when a shard is lost or the learner restarts from a
    checkpoint; inserted = size + evicted + lost."""

    shards: CountOrZero = 0
    """Shards that are reached now."""
    size: StepsOrZero = 0
    """Transitions in the memory."""
    inserted: StepsOrZero = 0
    """Transitions ever added."""
    evicted: StepsOrZero = 0
    """Transitions that made room for newer ones."""
    lost: StepsOrZero = 0
    """Transitions that were gone with their shard, or are in one that is silent."""
    sampled: StepsOrZero = 0
    """Transitions drawn for learning, each as often as it was drawn."""
    priorities_applied: StepsOrZero = 0
    """New priorities that reached their transition."""
    priorities_stale: StepsOrZero = 0
    """New priorities that came when their transition had been evicted."""
    replay_ratio: Measured = None
    """How often a transition is drawn on average: sampled over inserted, since the run began."""
    sample_age: Measured = None
    """Mean age of drawn transitions, in transitions that were added to their shard since."""


class CheckpointStatus(ApiModel):
    """The newest complete checkpoint."""

    uri: StoredUri
    """Where it lies."""
    step: StepsOrZero
    """Environment steps at which it was taken."""
    time: AwareDatetime
    """When it was complete."""


class Condition(ApiModel):
    """One aspect of the job's state, as `metav1.Condition` (KEP-1623)."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What it is about: `Ready`, `Suspended`, `Complete`, `Failed`."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Reason
    """Why, in CamelCase, for machines."""
    message: Text = ""
    """Why, in a sentence, for people."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """`metadata.generation` that this was judged by."""
    last_transition_time: datetime
    """When `status` last changed."""


class RoleStatus(ApiModel):
    """How the pods of a role are."""

    replicas: CountOrZero = 0
    """Pods that exist."""
    ready: CountOrZero = 0
    """Pods that do their work."""
    restarts: CountOrZero = 0
    """Restarts and replacements so far, whatever their cause."""
    summary: ShortText = ""
    """Ready and wanted, for people: `7/8`."""
    indices: Text = ""
    """Indices of the pods that exist and are to stay, as ranges: `0-5,7`. A pod missing from here is lost."""


class SamplerStatus(RoleStatus):
    """How the sampler pods are."""

    selector: Annotated[str, Field(max_length=1024)] = ""
    """Label selector of the sampler pods, for autoscalers."""


class LedgerEntry(ApiModel):
    """What has been counted already of a pod that exists, so that nothing counts twice and nothing is lost.

    A pod with which nothing has happened needs no entry; a member that is disrupted again and again keeps its entry
    while it has no pod.
    """

    pod: ShortText
    """Name of the pod."""
    uid: ShortText
    """Its uid: a replacement of the same name begins at nothing."""
    restarts: CountOrZero = 0
    """Restarts of its containers that are counted."""
    ended: bool = False
    """Whether its final end (failed, evicted, lost) is counted."""
    disruptions: CountOrZero = 0
    """Disruptions of this member in a row, over its replacements too, without progress between them."""
    steps: StepsOrZero = 0
    """Environment steps at the last of them: with more, training has got on, and the row is over."""


class Status(ApiModel):
    """How a job is; written by the operator."""

    phase: Phase = "Pending"
    """The state in one word, computed from everything else."""
    message: Text = ""
    """Why the phase is what it is, in one sentence."""
    algorithm: ShortText = ""
    """Name of the algorithm, or the module of one of the user's own, for the printer column."""
    preset: Preset | None = None
    """The preset that sets the defaults, once the learner has determined it."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=32,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
    """The state in detail, one entry per type."""
    learner: RoleStatus = Field(default_factory=RoleStatus)
    """The learner pods."""
    sampler: SamplerStatus = Field(default_factory=SamplerStatus)
    """The sampler pods."""
    replay_pods: RoleStatus | None = None
    """The replay pods, of a job that has them."""
    restarts: CountOrZero = 0
    """Restarts of all roles."""
    failures: CountOrZero = 0
    """Ends of pods and containers that count against `runPolicy.backoffLimit`."""
    disruptions: CountOrZero = 0
    """Ends of pods and containers that came from outside and do not count."""
    progress: Progress = Field(default_factory=Progress)
    """How far training has come."""
    curve: Curve = ()
    """The learning curve from its beginning to now, thinned as it grows. As new as `progress`."""
    replay: ReplayStatus | None = None
    """The replay memory, of an algorithm that has one."""
    evaluation: EvaluationStatus | None = None
    """Evaluations so far, for jobs with `spec.evaluation`."""
    progress_time: datetime | None = None
    """When progress last advanced; when nothing has advanced yet, when the job started."""
    report_time: datetime | None = None
    """When what the learner says of itself was last taken into this status and was news."""
    warnings: Annotated[tuple[Text, ...], Field(max_length=32, json_schema_extra=ATOMIC_LIST)] = ()
    """What the learner warns of, as `Reason: sentence`. Each becomes an Event, once."""
    checkpoint: CheckpointStatus | None = None
    """The newest complete checkpoint."""
    policy_uri: StoredUri | None = None
    """Where the trained policy lies, once the run is done."""
    start_time: datetime | None = None
    """When the job started, or was last resumed."""
    completion_time: datetime | None = None
    """When the job succeeded or failed."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """`metadata.generation` that this status was made for."""
    ledger: Annotated[
        tuple[LedgerEntry, ...],
        Field(max_length=MEMBERS_MAX, json_schema_extra=ATOMIC_LIST),
    ] = ()
    """The operator's own: which ends of existing pods are counted already. Atomic: kept apart, the owners of ten thousand
    entries would take as much room as the entries, and etcd holds 1.5 MiB of an object."""

    def of_role(self, role: Role) -> RoleStatus:
        """The pods of a role; of one that the job does not have, none."""
        match role:
            case "learner":
                return self.learner
            case "replay":
                return self.replay_pods or RoleStatus()
            case "sampler":
                return self.sampler
