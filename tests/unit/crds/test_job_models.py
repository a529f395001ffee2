"""The models: the shortest job, round trips, published defaults, and rules between fields."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from good_manifest import GOOD
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rltraining_api.algorithms import A2c, A3c, Aggregate, DqnApex, Impala, Ppo, UserAlgorithm
from rltraining_api.algorithms.gradients import A3cAggregate
from rltraining_api.autoscale import AutoscaleStatus, AutoscaleWindow
from rltraining_api.environment import Atari
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import NAME_MAX, ROLES, SAMPLERS_MAX, parse_pod_name, pod_name
from rltraining_api.status import LedgerEntry, Progress, ReplayStatus, RoleStatus, Status

SHORTEST: dict[str, Any] = yaml.safe_load(GOOD)


def job(**spec: Any) -> RLTrainingJob:
    return RLTrainingJob.model_validate(SHORTEST | {"spec": SHORTEST["spec"] | spec})


def dedicated(algorithm: str) -> dict[str, Any]:
    """Returns an algorithm with replay in dedicated pods."""
    return {algorithm: {"replay": {"placement": "Dedicated"}}}


def test_the_shortest_job_has_every_default_and_survives_being_written_and_read() -> None:
    spec = job().spec
    assert (spec.algorithm.name, spec.algorithm.title) == ("impala", "impala")
    assert spec.algorithm.parameters == Impala()
    assert spec.network.mlp is not None
    assert (spec.network.name, spec.network.mlp.hidden_sizes) == ("mlp", (64, 64))
    assert (spec.learner.replicas, spec.sampler.replicas) == (1, 2)
    assert (spec.run_policy.backoff_limit, spec.run_policy.clean_pod_policy) == (6, "Running")
    kwargs = {"render_mode": None, "gravity": 9.8}
    first = job(environment={"id": "CartPole-v1", "kwargs": kwargs})
    written = first.to_dict()
    assert RLTrainingJob.model_validate(written) == first
    assert written["spec"]["environment"]["kwargs"] == kwargs
    assert "image" not in written["spec"]
    assert "rewardClip" not in written["spec"]["algorithm"]["impala"]


def test_null_that_turns_a_default_off_survives_being_written() -> None:
    first = job(algorithm={"impala": {"gradientClip": None}})
    assert first.to_dict()["spec"]["algorithm"]["impala"]["gradientClip"] is None
    assert RLTrainingJob.model_validate(first.to_dict()) == first


TRAINER = "{template: {spec: {containers: [{name: trainer, %s}]}}}"
PROBLEMS = {
    "algorithm: {a3c: {aggregate: {mode: Sync}}}": "count must be null or at least 2 in mode Sync",
    "algorithm: {a3c: {nStep: 5, gaeLambda: 0.95}}": "gaeLambda must be 1 with nStep",
    "algorithm: {a3c: {epochs: 3}}": "Extra inputs are not permitted",
    "algorithm: {ppo: {rolloutLength: 2, minibatches: 4}}, environment: {id: CartPole-v1, numEnvs: 1}": (
        "ppo.minibatches must be at most rolloutLength x environment.numEnvs, the steps of a rollout, got 4"
    ),
    "algorithm: {ppo: {minibatches: 7, rolloutLength: 30}}, environment: {id: A, numEnvs: 3}, network: {mlp: {}, lstm: {}}": (
        "with network.lstm, ppo.minibatches must be at most environment.numEnvs x rolloutLength / sequenceLength, got 7"
    ),
    "tracking: {secretName: keys}": "at least one tracker is needed: wandb or mlflow",
    "tracking: {wandb: {project: a/b}}": "spec.tracking.wandb.project",
    "tracking: {mlflow: {experiment: a, trackingUri: localhost}}": "spec.tracking.mlflow.trackingUri",
    "algorithm: {impala: {optimizer: {}}}": "exactly one optimizer is needed, found none",
    "algorithm: {impala: {optimizer: {rmsprop: {}, adam: {}}}}": "found two: rmsprop and adam",
    "algorithm: {impala: {optimizer: {adam: {}, sgd: {}}}}": "found two: adam and sgd",
    "algorithm: {impala: {optimizer: {sgd: {momentum: 1}}}}": "less than 1",
    "algorithm: {impala: {learningRateSchedule: Linear}}, stop: {seconds: 9}": (
        "learningRateSchedule Linear needs stop.environmentSteps"
    ),
    "algorithm: {a3c: {gradients: Learner}}, learner: {replicas: 2}": (
        "gradients Learner with aggregate.mode Async needs learner.replicas 1: use gradients Samplers, with which each "
        "learner holds a slice of the parameters, or mode Sync, got 2 learners"
    ),
    "network: {mlp: {}, gaussian: {minLogStd: 1, maxLogStd: -1}}": (
        "gaussian.minLogStd must be at most gaussian.maxLogStd (-1), got 1"
    ),
    "algorithm: {dqnApex: {quantiles: 5, loss: SquaredError}}": "quantiles need loss Huber",
    "network: {mlp: {}, natureCnn: {}, lstm: {}}": "at most one network is possible, found two: mlp and natureCnn",
    "algorithm: {dqnApex: {}}, replay: {replicas: 2}": "replay is for dqnApex, ddpgApex, r2d2, sac or td3 with",
    "algorithm: {ddpgApex: {}}, network: {mlp: {}, lstm: {}}": "network.lstm does not go with",
    "algorithm: {sac: {}}, network: {mlp: {}, lstm: {}}": "network.lstm does not go with",
    "algorithm: {td3: {}}, network: {mlp: {}, lstm: {}}": "network.lstm does not go with",
    "algorithm: {r2d2: {}}, network: {mlp: {}, lstm: null}": "r2d2 needs network.lstm: leave it out",
    "algorithm: {ppo: {minibatches: 4, minibatchSize: 64}}": (
        "minibatchSize and minibatches both set how rollouts are split: set only one, got minibatchSize 64 and minibatches 4"
    ),
    "algorithm: {ppo: {clipRangeSchedule: Linear}}, stop: {seconds: 9}": (
        "clipRangeSchedule Linear needs stop.environmentSteps"
    ),
    "algorithm: {dqnApex: {replay: {minimum: 3000000, capacity: 2000000}}}": (
        "replay.capacity must be at least replay.minimum (3000000), got 2000000"
    ),
    "algorithm: {ddpgApex: {batchSize: 20000, replay: {minimum: 10000}}}": (
        "replay.minimum must be at least batchSize (20000), got 10000"
    ),
    "environment: {id: PongNoFrameskip-v4, atari: {}}": "environment.id ALE/<Game>-v5, got PongNo",
    "environment: {id: ALE/Pong-v5, kwargs: {frameskip: 4}}": "for ALE/Pong-v5: set atari.frameSkip instead",
    "environment: {id: ALE/Pong-v5, kwargs: {batch_size: 4}}": "batch_size is not for ALE/Pong-v5: leave it out",
    "stop: {}": "at least one rule is needed",
    "stop: {evaluation: {atLeast: 9}}": "stop.evaluation and stop.noImprovement need evaluation: set it",
    "stop: {seconds: 9, noImprovement: {evaluations: 9}}": "stop.noImprovement need evaluation",
    "evaluation: {episodes: 9}": "everySteps",
    "checkpoint: {uri: s3://b/p, volume: {claimName: c}}": "exclude each other",
    "checkpoint: {volume: {}}": "exactly one claim is needed",
    "checkpoint: {volume: {claimTemplate: {metadata: {labels: []}, spec: {}}}}": "must be an object of texts",
    "sampler: {autoscale: {min: 3, max: 2}}": "autoscale.min must be at most autoscale.max, got 3 and 2",
    "sampler: {autoscale: {min: 3}}": "max",
    **dict.fromkeys(
        (
            "algorithm: {ppo: {}}, sampler: {autoscale: {max: 3}}",
            "algorithm: {a2c: {}}, sampler: {autoscale: {max: 3}}",
            "algorithm: {a2c: {aggregate: {mode: Async}}}, sampler: {autoscale: {max: 3}}",
            "algorithm: {a3c: {aggregate: {mode: Sync, count: 2}}}, sampler: {autoscale: {max: 3}}",
        ),
        "sampler.autoscale is not for ppo, and with a3c or a2c needs aggregate.mode Async and a number as aggregate.count",
    ),
    "algorithm: {sac: {}}, sampler: {autoscale: {max: 3}}": "sampler.autoscale is not for replay.placement Samplers",
    "reproducible: {}, algorithm: {r2d2: {}}": (
        "reproducible is for a2c, ppo, impala, dqnApex, ddpgApex, sac or td3: use one of them, or leave reproducible out, "
        "got r2d2"
    ),
    "reproducible: {}, algorithm: {entryPoint: {module: a}}": "reproducible is for a2c, ppo, impala",
    "recording: {}, algorithm: {impala: {}}, learner: {replicas: 2}": "recording needs one learner: set learner.replicas to 1",
    "recording: {}, reproducible: {}, algorithm: {ppo: {}}": "leave recording or reproducible out",
    "recording: {megabytes: 0}, algorithm: {ppo: {}}": "greater than or equal to 1",
    "recording: {returnDrop: 0}, algorithm: {ppo: {}}": "greater than 0",
    "reproducible: true, algorithm: {ppo: {}}": "reproducible",
    "reproducible: {blocks: 0}, algorithm: {ppo: {}}": "greater than or equal to 1",
    **dict.fromkeys(
        (
            "reproducible: {}, algorithm: {ppo: {}}, learner: {replicas: 2}",
            "reproducible: {}, algorithm: {impala: {}}, learner: {replicas: 2}",
        ),
        "reproducible needs one learner: set learner.replicas to 1",
    ),
    "reproducible: {}, algorithm: {sac: {replay: {placement: Dedicated}}}": "the learner keeps the replay: set replay.pl",
    **dict.fromkeys(
        (
            "reproducible: {}, algorithm: {ppo: {gradients: Samplers}}",
            "reproducible: {}, algorithm: {ppo: {aggregate: {count: 2}}}",
            "reproducible: {}, algorithm: {a2c: {aggregate: {mode: Async}}}",
        ),
        "reproducible needs a learner that computes the gradients of all rollouts",
    ),
    "reproducible: {}, algorithm: {ppo: {}}, environment: {id: a-v0, onError: Reset}": "leave environment.onError at",
    "reproducible: {}, algorithm: {ppo: {}}, environment: {id: ALE/Pong-v5}": "can be seeded and played again",
    "reproducible: {}, algorithm: {ppo: {}}, stop: {seconds: 9}": (
        "needs stop rules that are met at the same update in each run: use stop.environmentSteps, meanReturn or"
    ),
    "reproducible: {}, algorithm: {a2c: {}}, evaluation: {everySteps: 9}, stop: {evaluation: {atLeast: 9}}": (
        "needs stop rules that are met at the same update"
    ),
    "sampler: {template: {spec: {containers: {name: x}}}}": "containers must be a list of objects, each with a",
    "sampler: {template: {spec: {volumes: [{name: ../x}]}}}": "volumes: a name must be lower-case letters, digits",
    f"sampler: {TRAINER % 'env: [{name: [A]}]'}": "env must be a list",
    f"sampler: {TRAINER % 'env: null'}": "env must be a list",
    f"sampler: {TRAINER % 'volumeMounts: [{name: x}]'}": "each with a mountPath",
    "sampler: {template: {spec: {securityContext: {sysctls: [a]}}}}": "sysctls must be a list of objects, each",
    "sampler: {template: {spec: {securityContext: null}}}": "securityContext must be an object",
    f"sampler: {TRAINER % 'resources: 2'}": "resources must be an object with the objects requests and limits",
    f"sampler: {TRAINER % 'resources: {limits: 2}'}": "resources must be an object with the objects",
    f"sampler: {TRAINER % 'envFrom: {name: a}'}": "envFrom must be a list",
    "sampler: {template: {metadata: {labels: null}}}": "labels must be an object of texts",
    "sampler: {template: {metadata: {annotations: {a: 1}}}}": "annotations must be an object of texts",
    "sampler: {template: {metadata: {labels: {rltraining.dev/role: learner}}}}": (
        "labels: rltraining.dev/role is set by the operator: use a key of another domain"
    ),
    "replay: {template: {metadata: {annotations: {rltraining.dev/x: y}}}}": "rltraining.dev/x is set by the operator",
    "learner: {template: {metadata: {labels: {app.kubernetes.io/managed-by: me}}}}": "managed-by is set by the operator",
    "sampler: {template: {metadata: {labels: {app.kubernetes.io/name: rltraining-operator}}}}": (
        "labels: app.kubernetes.io/name: rltraining-operator marks the operator's own pods: use another value"
    ),
    "checkpoint: {volume: {claimTemplate: {metadata: {labels: {rltraining.dev/job-name: a}}, spec: {}}}}": (
        "rltraining.dev/job-name is set by the operator"
    ),
    "runPolicy: {schedulingPolicy: {}}": "found none: set one of kueue, volcano, coscheduling",
    "runPolicy: {schedulingPolicy: {kueue: {queueName: a}, volcano: {}}}": "found two: kueue and volcano",
    "runPolicy: {schedulingPolicy: {kueue: {}}}": "queueName",
    "runPolicy: {schedulingPolicy: {kueue: {queueName: No Queue}}}": "pattern",
    "runPolicy: {schedulingPolicy: {volcano: {minAvailable: 0}}}": "greater than or equal to 1",
    "runPolicy: {schedulingPolicy: {coscheduling: {scheduleTimeoutSeconds: 0}}}": "greater than or equal to 1",
}


@pytest.mark.parametrize(("spec", "sentence"), PROBLEMS.items())
def test_rules_between_fields(spec: str, sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        job(**yaml.safe_load(f"{{{spec}}}"))
    assert sentence in str(caught.value)


def test_games_are_preprocessed_as_published_unless_atari_says_otherwise() -> None:
    def preprocessing(**environment: Any) -> Atari | None:
        return job(environment=environment).spec.environment.preprocessing

    assert preprocessing(id="ALE/Pong-v5") == Atari()
    changed = preprocessing(id="ALE/MsPacman-v5", atari={"stickyActions": 0}, kwargs={"num_threads": 2})
    assert changed == Atari(sticky_actions=0)
    for id in ("CartPole-v1", "PongNoFrameskip-v4", "ale_py:ALE/Pong-v5"):
        assert preprocessing(id=id, kwargs={"frameskip": 4}) is None


def test_what_an_aggregate_may_be() -> None:
    assert A3c().aggregate == A3cAggregate(mode="Async", count=1)
    assert A2c().aggregate == Ppo().aggregate == Aggregate(mode="Sync", count=None)
    slow = {"mode": "Async", "count": None, "maxPolicyLag": 0, "queueCapacity": 8}
    for algorithm in ("a3c", "a2c"):
        assert job(algorithm={algorithm: {"aggregate": slow}}).spec.algorithm.name == algorithm
    in_step = A3c.model_validate({"aggregate": {"mode": "Sync", "count": None}})
    assert A3c.model_validate(in_step.to_dict()) == in_step, "null is not the default, and has to be written"
    assert A3c.model_validate({"aggregate": {"maxPolicyLag": 4}}).aggregate.count == 1
    assert A3c.model_validate({"nStep": 3}).gae_lambda == 1
    assert A2c.model_validate({"gaeLambda": 0.9}).n_step is None
    least = {"batchSize": 512, "replay": {"minimum": 512, "capacity": 512}}
    assert DqnApex.model_validate(least).replay.minimum == 512


def test_a_users_algorithm_keeps_its_parameters_as_they_are() -> None:
    entry = {"module": "my_package.algorithm", "parameters": {"width": 3, "schedule": [None, {"a_b": 1}]}}
    made = job(algorithm={"entryPoint": entry})
    assert (made.spec.algorithm.name, made.spec.algorithm.title) == ("entryPoint", "my_package.algorithm")
    assert made.spec.algorithm.parameters == UserAlgorithm.model_validate(entry)
    assert made.to_dict()["spec"]["algorithm"] == {"entryPoint": entry}
    assert UserAlgorithm(module="a").parameters == {}


@pytest.mark.parametrize(
    ("algorithm", "replay", "count"),
    [
        ({"dqnApex": {}}, None, 0),
        (dedicated("dqnApex"), None, 1),
        (dedicated("ddpgApex"), {"replicas": 3}, 3),
        (dedicated("sac"), {"replicas": 3}, 3),
        (dedicated("td3"), {"replicas": 3}, 3),
    ],
)
def test_only_a_dedicated_replay_has_pods(algorithm: dict[str, Any], replay: Any, count: int) -> None:
    made = job(algorithm=algorithm, replay=replay).spec
    assert {role: made.replicas(role) for role in ROLES} == {"learner": 1, "replay": count, "sampler": 2}


def test_with_autoscale_the_operator_sets_the_number_of_samplers() -> None:
    autoscale = AutoscaleStatus(
        target=5,
        observed_replicas=2,
        observed_min=1,
        observed_max=8,
        window=AutoscaleWindow(since=datetime(2026, 1, 1, tzinfo=UTC)),
    )
    status = {"status": Status(autoscale=autoscale)}
    follows = job(sampler={"replicas": 2, "autoscale": {"max": 8}})
    assert follows.replicas("sampler") == 2, "before the operator's first pass"
    follows = follows.model_copy(update=status)
    assert {role: follows.replicas(role) for role in ROLES} == {"learner": 1, "replay": 0, "sampler": 5}
    assert job().model_copy(update=status).replicas("sampler") == 2, "autoscale was removed"
    assert RLTrainingJob.model_validate(follows.to_dict()) == follows


def test_autoscale_is_for_asynchronous_gradients() -> None:
    for algorithm in ({"a3c": {}}, {"a2c": {"aggregate": {"mode": "Async", "count": 1}}}):
        assert job(algorithm=algorithm, sampler={"autoscale": {"max": 3}}).spec.sampler.autoscale is not None


def test_each_role_has_its_template() -> None:
    marked = {role: {"template": {"metadata": {"labels": {"role": role}}}} for role in ROLES}
    made = job(algorithm=dedicated("dqnApex"), **marked).spec
    assert {role: made.template(role).metadata["labels"]["role"] for role in ROLES} == {r: r for r in ROLES}
    assert job(algorithm=dedicated("dqnApex")).spec.template("replay").spec == {}


def test_pod_failure_policy_reads_as_in_batch_v1() -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    parsed = job(runPolicy={"podFailurePolicy": {"rules": [rule]}}).spec.run_policy.pod_failure_policy
    assert parsed is not None
    assert parsed.rules[0].on_pod_conditions is not None
    assert parsed.rules[0].on_pod_conditions[0].status == "True"


@pytest.mark.parametrize(
    "requirement",
    [
        "",
        "onExitCodes: {operator: In, values: [0]}",
        "onExitCodes: {operator: In, values: [3, 3]}",
        "onExitCodes: {operator: In, values: []}",
        "onExitCodes: {operator: In, values: [1]}, onPodConditions: [{type: X}]",
    ],
)
def test_pod_failure_policy_refuses_as_batch_v1_does(requirement: str) -> None:
    rule = yaml.safe_load(f"{{action: Ignore, {requirement}}}")
    with pytest.raises(ValidationError):
        job(runPolicy={"podFailurePolicy": {"rules": [rule]}})


def test_a_pods_name_tells_its_role_and_index() -> None:
    found = {name: parse_pod_name("demo", f"demo-{name}") for name in ("learner-0", "replay-3", "sampler-12")}
    assert found == {"learner-0": ("learner", 0), "replay-3": ("replay", 3), "sampler-12": ("sampler", 12)}
    for name in ("sampler-01", "sampler-", "sampler-x", "critic-1"):
        assert parse_pod_name("demo", f"demo-{name}") is None
    assert parse_pod_name("demo", "other-sampler-1") is parse_pod_name("demo", "demo") is None
    assert len(pod_name("a" * NAME_MAX, "sampler", SAMPLERS_MAX - 1)) == 63, "a DNS label"


def test_what_a_job_does_not_have_is_not_in_its_status() -> None:
    assert not {"replay", "replayPods"} & Status().to_dict().keys()
    assert Status().of_role("replay") == RoleStatus()
    entry = LedgerEntry(pod="a-sampler-0", uid="u", restarts=2)
    whole = Status(
        replay=ReplayStatus(shards=2, replay_ratio=0.8), replay_pods=RoleStatus(ready=2), ledger=(entry,)
    )
    assert Status.model_validate(whole.to_dict()) == whole
    assert whole.to_dict()["replay"]["replayRatio"] == 0.8
    assert whole.of_role("replay").ready == 2


@given(st.floats())
def test_measurements_that_json_has_not_become_none(value: float) -> None:
    assert Progress(mean_return=value).mean_return == (value if math.isfinite(value) else None)
