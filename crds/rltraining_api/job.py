"""`RLTrainingJob`: one distributed reinforcement-learning run. Other modules define the parts of
the spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from rltraining_api import patterns
from rltraining_api.algorithms import ALGORITHMS, Algorithm, GradientsAt, sequences_of
from rltraining_api.algorithms.gradients import MINIBATCHES_HOLD_SEQUENCES, MINIBATCHES_HOLD_STEPS
from rltraining_api.autoscale import autoscale_rules
from rltraining_api.base import ApiModel, ByTask, Rule, any_of, refusal
from rltraining_api.environment import Environment
from rltraining_api.evaluation import Evaluation
from rltraining_api.fields import Preset
from rltraining_api.introspect import field_at, may_be_absent
from rltraining_api.lifecycle import Checkpoint, Encryption, RunPolicy, Stop
from rltraining_api.names import API_VERSION, KIND, NAME_MAX, Role
from rltraining_api.network import Network
from rltraining_api.recording import Recording, recording_rules
from rltraining_api.reproducible import Reproducible, reproducible_rules
from rltraining_api.roles import Code, Image, LearnerRole, PodTemplate, ReplayRole, SamplerRole
from rltraining_api.status import Status
from rltraining_api.tracking import Tracking


class Metadata(ApiModel):
    """The part of `metadata` that this system reads. Other keys are ignored."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(max_length=NAME_MAX, pattern=patterns.LABEL)
    """An RFC 1035 label, shorter than Kubernetes' limit because the names of pods append
    `-sampler-9999`."""
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


IMMUTABLE = (
    "preset",
    "algorithm",
    "environment",
    "network",
    "learner",
    "replay",
    "image",
    "code",
    "evaluation",
    "tracking",
    "checkpoint.uri",
    "checkpoint.volume",
    "checkpoint.resumeFrom",
    "runPolicy.managedBy",
    "runPolicy.schedulingPolicy",
    "seed",
    "recording",
    "reproducible",
    "encryption",
)
"""Paths in the spec that are immutable in every job. For `sampler.template` see TEMPLATE_HOLDS_SHARDS."""

SCHEDULE_NEEDS_STEPS = "{} Linear needs stop.environmentSteps to fall to 0: set it, or use Constant"
"""Message, to be formatted with the key of the schedule."""
WITH_REPLAY = tuple(key for key, model in ALGORITHMS.items() if "replay" in model.model_fields)
"""The algorithms that learn from a replay memory."""
RECURRENT = tuple(key for key, model in ALGORITHMS.items() if getattr(model, "recurrent", False))
"""The algorithms that learn from replayed sequences, with an LSTM."""
WITHOUT_LSTM = tuple(name for name in WITH_REPLAY if name not in RECURRENT)
"""The algorithms that learn from single replayed transitions."""
MAY_BE_ASYNC = ("a3c", "a2c")
"""The algorithms that allow mode Async in `aggregate`."""
REPLAY_NEEDS_PLACEMENT = (
    f"replay is for {any_of(WITH_REPLAY)} with replay.placement Dedicated: set that, or leave replay out"
)
TEMPLATE_HOLDS_SHARDS = (
    "sampler.template is immutable with replay.placement Samplers, where a replaced sampler loses its replay shard: "
    "to change it, delete the job and create it again, or set replay.placement to Learner or Dedicated in a new job"
)
LEARNER_GRADIENTS_NEED_ONE = (
    "gradients Learner with aggregate.mode Async needs learner.replicas 1: use gradients Samplers, with which each "
    "learner holds a slice of the parameters, or mode Sync"
)
NO_LSTM = (
    f"network.lstm does not go with {any_of(WITHOUT_LSTM)}: replayed transitions carry no recurrent state; leave it out, "
    f"or use ppo, a2c, a3c, impala or, for Discrete actions, {any_of(RECURRENT)}"
)
NEEDS_LSTM = f"{any_of(RECURRENT)} needs network.lstm: leave it out, or set its size"

RULES_NEED_EVALUATION = "stop.evaluation and stop.noImprovement need evaluation: set it, or leave them out"


def _algorithm_is(names: Iterable[str]) -> str:
    return " || ".join(f"has(self.algorithm.{name})" for name in names)


def _replay_is(placement: str) -> str:
    return " || ".join(
        f"(has(self.algorithm.{name}) && self.algorithm.{name}.replay.placement == '{placement}')"
        for name in WITH_REPLAY
    )


class JobSpec(ApiModel):
    """Algorithm, environment, pods and stop rules of a run. `sampler`, `stop`, `checkpoint.everySeconds`, `checkpoint.keep` and
    `runPolicy` (except its `managedBy` and `schedulingPolicy`) may change while the job runs. Other fields are immutable."""

    preset: Preset | None = None
    """The kind of task that sets defaults: images (Atari), continuous control (MuJoCo), or everything else (Classic). Default:
    chosen by the environment's spaces, images first, then a Box of actions. See `rltrain explain`. Immutable."""
    algorithm: Algorithm
    """Exactly one algorithm, with its hyperparameters. Immutable."""
    environment: Environment
    """The training environment. Immutable."""
    network: ByTask[Network] = Field(default_factory=Network.default)
    """The network for policy and value. Immutable."""
    learner: LearnerRole = Field(default_factory=LearnerRole)
    """The pods that update the parameters. Immutable."""
    replay: ReplayRole | None = None
    """The pods that store the replay memory if its placement is Dedicated. Default: one pod. Immutable."""
    sampler: SamplerRole = Field(default_factory=SamplerRole)
    """The pods that step environments. May change while the job runs, except `template` with
    `replay.placement: Samplers`."""
    image: Image | None = None
    """Trainer image. Default: the image set at the operator's installation. Immutable. Samplers may
    get another image with the container `trainer` of `sampler.template`."""
    code: Code | None = None
    """User code that is not in the image. Immutable."""
    stop: Stop
    """When the run is done. The first rule that is met ends the run successfully. May change while
    the job runs."""
    evaluation: Evaluation | None = None
    """How often and over how many episodes the policy is evaluated during training. Default: no evaluation. Immutable."""
    tracking: Tracking | None = None
    """Trackers that receive the curves: Weights & Biases, MLflow. Default: none. Files for
    TensorBoard are always written. Immutable."""
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    """How often the training state is saved, and where. Without `uri` and `volume` the state and
    the final policy are stored in the learner's pod, and survive a restart of the container but not
    the loss of the pod. Only `everySeconds` and `keep` may change while the job runs."""
    run_policy: RunPolicy = Field(default_factory=RunPolicy)
    """Suspension, limits and clean-up, with the meanings of a batch/v1 Job."""
    encryption: Encryption | None = None
    """TLS between the job's pods, and from the operator to them. No effect in local runs. Default: as set
    at the operator's installation, which is None by default. Immutable."""
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    """Seed of all random numbers. Each sampler and environment derives a different seed from it.
    Immutable."""
    reproducible: Reproducible | None = None
    """Makes runs with the same manifest and seed equal, bit for bit, whatever the number of samplers
    and whatever fails. For a2c, ppo, impala, dqnApex, ddpgApex, sac and td3. Default: off; timing and
    failures change the result. Immutable."""
    recording: Recording | None = None
    """Keeps the data of the newest updates for `rltrain rerun`. Default: off; one learner that computes the loss itself keeps
    only an update whose loss is NaN. Immutable."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(f"!has(self.replay) || {_replay_is('Dedicated')}", REPLAY_NEEDS_PLACEMENT),
        *autoscale_rules(_replay_is("Samplers")),
        Rule(f"!has(self.network) || !has(self.network.lstm) || !({_algorithm_is(WITHOUT_LSTM)})", NO_LSTM),
        *recording_rules(),
        *reproducible_rules(),
        Rule(
            "has(self.evaluation) || !(has(self.stop.evaluation) || has(self.stop.noImprovement))",
            RULES_NEED_EVALUATION,
        ),
        Rule(
            "!has(self.algorithm.ppo) || !has(self.algorithm.ppo.minibatches) || "
            "!has(self.algorithm.ppo.rolloutLength) || !has(self.environment.numEnvs) || "
            "self.algorithm.ppo.minibatches <= self.algorithm.ppo.rolloutLength * self.environment.numEnvs",
            MINIBATCHES_HOLD_STEPS,
        ),
        Rule(
            "!has(self.algorithm.ppo) || !has(self.algorithm.ppo.minibatches) || !has(self.network) || "
            "!has(self.algorithm.ppo.rolloutLength) || !has(self.environment.numEnvs) || !has(self.network.lstm) || "
            "self.algorithm.ppo.minibatches <= self.environment.numEnvs * ((self.algorithm.ppo.rolloutLength + "
            "self.algorithm.ppo.sequenceLength - 1) / self.algorithm.ppo.sequenceLength)",
            MINIBATCHES_HOLD_SEQUENCES,
        ),
    )

    @classmethod
    def all_rules(cls) -> tuple[Rule, ...]:
        """Returns the rules for immutability, for schedules that need an end, and for combinations with algorithms."""
        changes = (_unchanged(path) for path in IMMUTABLE)
        return (
            *changes,
            Rule(
                f"!({_replay_is('Samplers')}) || self.sampler.template == oldSelf.sampler.template",
                TEMPLATE_HOLDS_SHARDS,
            ),
            *_schedules_have_an_end(),
            *map(_has_one_learner, MAY_BE_ASYNC),
            *cls.cel_rules,
        )

    def replicas(self, role: Role) -> int:
        """Returns the number of pods of a role in the spec. With `sampler.autoscale` see `RLTrainingJob.replicas`."""
        match role:
            case "learner":
                return self.learner.replicas
            case "replay":
                return (self.replay or ReplayRole()).replicas if self._has_replay_pods else 0
            case "sampler":
                return self.sampler.replicas

    def template(self, role: Role) -> PodTemplate:
        """Returns the pod template of a role."""
        match role:
            case "learner":
                return self.learner.template
            case "replay":
                return (self.replay or ReplayRole()).template
            case "sampler":
                return self.sampler.template

    @property
    def gradients_at(self) -> GradientsAt | None:
        """Where a3c, a2c and ppo compute gradients. None for other algorithms."""
        settings = self.algorithm.parameters
        if (aggregate := getattr(settings, "aggregate", None)) is None:
            return None
        sliced = aggregate.mode == "Async" and self.learner.replicas > 1
        default: GradientsAt = "Samplers" if sliced else "Learner"
        return getattr(settings, "gradients", None) or default

    @property
    def _has_replay_pods(self) -> bool:
        replay = self.algorithm.replay
        return replay is not None and replay.placement == "Dedicated"

    @model_validator(mode="after")
    def _schedule_has_an_end(self) -> Self:
        if self.stop.environment_steps is None:
            for name, key in schedules(type(self.algorithm.parameters)):
                if getattr(self.algorithm.parameters, name) == "Linear":
                    raise refusal(SCHEDULE_NEEDS_STEPS.format(key))
        return self

    @model_validator(mode="after")
    def _gradients_at_one_learner(self) -> Self:
        aggregate = getattr(self.algorithm.parameters, "aggregate", None)
        if aggregate is None or aggregate.mode == "Sync":
            return self
        if self.gradients_at == "Learner" and self.learner.replicas > 1:
            raise refusal(f"{LEARNER_GRADIENTS_NEED_ONE}, got {self.learner.replicas} learners")
        return self

    @model_validator(mode="after")
    def _goes_with_the_algorithm(self) -> Self:
        name = self.algorithm.name
        if self.replay is not None and not self._has_replay_pods:
            raise refusal(REPLAY_NEEDS_PLACEMENT)
        if self.network.lstm is not None and name in WITHOUT_LSTM:
            raise refusal(NO_LSTM)
        if self.network.has_set("lstm") and self.network.lstm is None and name in RECURRENT:
            raise refusal(NEEDS_LSTM)
        return self

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        options = (self.sampler.autoscale, self.recording, self.reproducible)
        problems = [option.problem(self) for option in options if option is not None]
        if (problem := next(filter(None, problems), None)) is not None:
            raise refusal(problem)
        return self

    @model_validator(mode="after")
    def _rules_have_evaluations(self) -> Self:
        rules = (self.stop.evaluation, self.stop.no_improvement)
        if self.evaluation is None and rules != (None, None):
            raise refusal(RULES_NEED_EVALUATION)
        return self

    @model_validator(mode="after")
    def _minibatches_hold_something(self) -> Self:
        ppo = self.algorithm.ppo
        if ppo is None or not (ppo.has_set("rollout_length") and self.environment.has_set("num_envs")):
            return self
        steps, environments, minibatches = ppo.rollout_length, self.environment.num_envs, ppo.minibatches or 1
        if minibatches > steps * environments:
            raise refusal(f"{MINIBATCHES_HOLD_STEPS}, got {minibatches}")
        if self.network.lstm is not None and minibatches > sequences_of(
            steps, environments, ppo.sequence_length
        ):
            raise refusal(f"{MINIBATCHES_HOLD_SEQUENCES}, got {minibatches}")
        return self


def _unchanged(path: str) -> Rule:
    """Returns the rule that makes a field of the spec immutable. The path may have two parts."""
    new, old = f"self.{path}", f"oldSelf.{path}"
    rule = f"{new} == {old}"
    if may_be_absent(field_at(JobSpec, path.split("."))):
        rule = f"has({new}) == has({old}) && (!has({new}) || {rule})"
    return Rule(rule, f"{path} is immutable: to change it, delete the job and create it again")


def schedules(model: type[ApiModel]) -> list[tuple[str, str]]:
    """Returns the schedules of an algorithm as pairs of Python name and manifest key."""
    return [
        (name, field.alias or name)
        for name, field in model.model_fields.items()
        if name.endswith("_schedule")
    ]


def _schedules_have_an_end() -> Iterator[Rule]:
    for algorithm, model in ALGORITHMS.items():
        for _, key in schedules(model):
            here = f"self.algorithm.{algorithm}"
            unset = f"!has({here}) || !has({here}.{key})"
            rule = f"{unset} || {here}.{key} != 'Linear' || has(self.stop.environmentSteps)"
            yield Rule(rule, SCHEDULE_NEEDS_STEPS.format(key))


def _has_one_learner(algorithm: str) -> Rule:
    path = f"self.algorithm.{algorithm}"
    unset = f"!has({path}) || !has({path}.gradients)"
    mode = f"has({path}.aggregate) && has({path}.aggregate.mode) && {path}.aggregate.mode"
    # Without a mode, a3c is asynchronous and the others are not.
    sync = f"({mode} == 'Sync')" if algorithm == "a3c" else f"!({mode} == 'Async')"
    return Rule(
        f"{unset} || {path}.gradients != 'Learner' || self.learner.replicas == 1 || {sync}",
        LEARNER_GRADIENTS_NEED_ONE,
    )


class RLTrainingJob(ApiModel):
    """A distributed reinforcement-learning run: a learner, samplers, and when to stop."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.size() <= {NAME_MAX}",
            f"metadata.name must have at most {NAME_MAX} characters",
        ),
        Rule(
            f"self.metadata.name.matches('{patterns.LABEL}')",
            f"metadata.name {patterns.MEANINGS[patterns.LABEL]}",
        ),
    )

    api_version: Literal["rltraining.dev/v1alpha1"] = API_VERSION
    """Version of this schema."""
    kind: Literal["RLTrainingJob"] = KIND
    """The kind of this object."""
    metadata: Metadata
    spec: JobSpec
    """What to train; written by the user."""
    status: Status = Field(default_factory=Status)
    """State of the run; written by the operator."""

    def replicas(self, role: Role) -> int:
        """Returns the number of pods that the job should have for a role. With `sampler.autoscale` the
        operator sets the number of samplers."""
        autoscale = self.status.autoscale
        if role == "sampler" and self.spec.sampler.autoscale is not None and autoscale is not None:
            return autoscale.target
        return self.spec.replicas(role)

    def with_samplers(self, count: int) -> Self:
        """Returns the job with this number of samplers in its spec."""
        sampler = self.spec.sampler.model_copy(update={"replicas": count})
        return self.model_copy(update={"spec": self.spec.model_copy(update={"sampler": sampler})})
