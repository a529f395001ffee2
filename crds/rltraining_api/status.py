"""`status` of an RLTrainingJob: written only by the operator, which rebuilds it in each pass."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from rltraining_api.autoscale import AutoscaleStatus
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
    """Progress of training. Counters never return further than to the newest checkpoint."""

    environment_steps: StepsOrZero = 0
    """Environment steps whose unrolls the learner has used."""
    episodes: StepsOrZero = 0
    """Episodes that ended within those steps."""
    updates: StepsOrZero = 0
    """Optimizer steps."""
    model_version: StepsOrZero = 0
    """Version of the newest parameters that samplers can receive."""
    mean_return: Measured = None
    """Mean undiscounted return of the last `stop.meanReturn.episodes` (default 100) training
    episodes, or of fewer at first. Each sampler's episodes count in the order in which they began,
    once all earlier ones have ended, so that short episodes are not preferred."""
    best_return: Measured = None
    """Highest `meanReturn` so far over the full number of episodes."""
    steps_per_second: Measured = None
    """Environment steps per second, over the last seconds."""
    received_bytes_per_second: Measured = None
    """Bytes per second that the first learner received in messages of other members, over the last seconds."""
    sent_bytes_per_second: Measured = None
    """Bytes per second that the first learner sent in messages to other members, over the last seconds."""
    percent: Measured = None
    """Percentage of `stop` that is reached, 0 to 100: the largest over the rules that have a
    percentage."""
    learner_wait_percent: Measured = None
    """Percentage of the last seconds for which the learner waited for data. Near 0: the learner is the
    bottleneck. Near 100: the samplers are. Unknown for an algorithm of the user's that does not train
    with `run.train`."""
    policy_lag: Measured = None
    """Mean age in parameter versions of the policy that produced the data, when the learner used
    the data."""
    policy_lag_p50: Measured = None
    """Median of that age over the last 1,000 unrolls or gradients."""
    policy_lag_p99: Measured = None
    """99th percentile of that age over the last 1,000 unrolls or gradients."""


class ReplayStatus(ApiModel):
    """The replay memory, all shards together. Counts continue when a shard is lost or the learner
    restarts from a checkpoint; inserted = size + evicted + lost."""

    shards: CountOrZero = 0
    """Shards that can be reached now."""
    size: StepsOrZero = 0
    """Transitions in the memory."""
    inserted: StepsOrZero = 0
    """Transitions ever added."""
    evicted: StepsOrZero = 0
    """Transitions that were evicted for newer ones."""
    lost: StepsOrZero = 0
    """Transitions that were lost with their shard, or are in a shard that does not respond."""
    sampled: StepsOrZero = 0
    """Transitions sampled for learning, each counted as often as it was sampled."""
    priorities_applied: StepsOrZero = 0
    """New priorities that were applied to their transition."""
    priorities_stale: StepsOrZero = 0
    """New priorities that arrived after their transition had been evicted."""
    replay_ratio: Measured = None
    """Average number of times that a transition is sampled: sampled over inserted, since the start
    of the run."""
    sample_age: Measured = None
    """Mean age of sampled transitions, in transitions that were added to their shard since."""


class CheckpointStatus(ApiModel):
    """The newest complete checkpoint."""

    uri: StoredUri
    """Where the checkpoint is stored."""
    step: StepsOrZero
    """Environment steps at the time of the checkpoint."""
    time: AwareDatetime
    """When the checkpoint was complete."""


class Condition(ApiModel):
    """One aspect of the job's state, as `metav1.Condition` (KEP-1623)."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """Type of the condition: `Ready`, `Suspended`, `Complete`, `Failed`."""
    status: Literal["True", "False", "Unknown"]
    """Status of the condition."""
    reason: Reason
    """Reason in CamelCase, for machines."""
    message: Text = ""
    """Reason in a sentence, for people."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """`metadata.generation` from which the condition was derived."""
    last_transition_time: datetime
    """When `status` last changed."""


class RoleStatus(ApiModel):
    """State of the pods of a role."""

    replicas: CountOrZero = 0
    """Pods that exist."""
    ready: CountOrZero = 0
    """Pods that are ready."""
    restarts: CountOrZero = 0
    """Restarts and replacements so far, for any reason."""
    summary: ShortText = ""
    """Ready and desired pods, for people: `7/8`."""
    indices: Text = ""
    """Indices of the pods that exist and should remain, as ranges: `0-5,7`. A pod with a missing
    index is lost."""


class SamplerStatus(RoleStatus):
    """State of the sampler pods."""

    updated: CountOrZero = 0
    """Pods with the present `spec.sampler.template`. After a change of the template the others are
    replaced."""
    selector: Annotated[str, Field(max_length=1024)] = ""
    """Label selector of the sampler pods, for autoscalers."""
    template: ShortText = ""
    """For the operator only: short hash of the template of pods without the annotation
    `rltraining.dev/template`, which an older operator created."""


class LedgerEntry(ApiModel):
    """The counted failures of an existing pod, so that each failure is counted exactly once.

    A pod without failures has no entry. A member with repeated disruptions keeps its entry while
    it has no pod.
    """

    pod: ShortText
    """Name of the pod."""
    uid: ShortText
    """Uid of the pod. Counts of a replacement with the same name start at 0."""
    restarts: CountOrZero = 0
    """Counted restarts of the pod's containers."""
    ended: bool = False
    """Whether the end of the pod (failed, evicted, lost) is counted."""
    disruptions: CountOrZero = 0
    """Consecutive disruptions of this member, including its replacements, without progress between
    them."""
    steps: StepsOrZero = 0
    """Environment steps at the last of these disruptions. A higher number means progress and ends
    the sequence."""


class Status(ApiModel):
    """State of a job, written by the operator."""

    phase: Phase = "Pending"
    """The state in one word, derived from the rest of the status."""
    message: Text = ""
    """Reason for the phase, in one sentence."""
    algorithm: ShortText = ""
    """Name of the algorithm, or module of a custom one, for the printer column."""
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
    autoscale: AutoscaleStatus | None = None
    """The number of samplers, for jobs with `spec.sampler.autoscale`."""
    replay_pods: RoleStatus | None = None
    """The replay pods, for jobs with replay pods."""
    restarts: CountOrZero = 0
    """Restarts of all roles."""
    failures: CountOrZero = 0
    """Failures of pods and containers that count against `runPolicy.backoffLimit`."""
    disruptions: CountOrZero = 0
    """Ends of pods and containers with an external cause, which do not count."""
    progress: Progress = Field(default_factory=Progress)
    """Progress of training."""
    bottleneck: Text | None = None
    """What limits the speed of training, and what makes training faster, as `rltrain why` prints it. As new
    as `progress`. Missing until the learner reports how long it waits for data."""
    curve: Curve = ()
    """The learning curve of the run so far, thinned as it grows, and as new as `progress`."""
    replay: ReplayStatus | None = None
    """The replay memory, for algorithms with a replay memory."""
    evaluation: EvaluationStatus | None = None
    """Evaluations so far, for jobs with `spec.evaluation`."""
    progress_time: datetime | None = None
    """When progress last advanced. Before the first progress, when the job started."""
    report_time: datetime | None = None
    """When a new report of the learner was last copied into this status."""
    warnings: Annotated[tuple[Text, ...], Field(max_length=32, json_schema_extra=ATOMIC_LIST)] = ()
    """Warnings of the learner, as `Reason: sentence`. The operator writes one Event for each."""
    checkpoint: CheckpointStatus | None = None
    """The newest complete checkpoint."""
    policy_uri: StoredUri | None = None
    """Where the trained policy is stored, once the run is done."""
    start_time: datetime | None = None
    """When the job started, or was last resumed."""
    completion_time: datetime | None = None
    """When the job succeeded or failed."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """`metadata.generation` from which this status was derived."""
    ledger: Annotated[
        tuple[LedgerEntry, ...],
        Field(max_length=MEMBERS_MAX, json_schema_extra=ATOMIC_LIST),
    ] = ()
    """For the operator only: which failures of existing pods are already counted. Atomic, because
    the field managers of ten thousand separate entries would need as much space as the entries, and
    etcd limits objects to 1.5 MiB."""

    def of_role(self, role: Role) -> RoleStatus:
        """Returns the state of the pods of a role. It is empty for a role that the job does not
        have."""
        match role:
            case "learner":
                return self.learner
            case "replay":
                return self.replay_pods or RoleStatus()
            case "sampler":
                return self.sampler
