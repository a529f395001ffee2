"""The models: the shortest job, round trips, published defaults, and rules between fields."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rltraining_api.algorithms import (
    A2c,
    A3c,
    Aggregate,
    DqnApex,
    Impala,
    Optimizer,
    Ppo,
    Sgd,
    UserAlgorithm,
)
from rltraining_api.algorithms.gradients import A3cAggregate
from rltraining_api.environment import Atari
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import NAME_MAX, ROLES, SAMPLERS_MAX, parse_pod_name, pod_name
from rltraining_api.status import LedgerEntry, Progress, ReplayStatus, RoleStatus, Status

SHORTEST: dict[str, Any] = {
    "apiVersion": "rltraining.dev/v1alpha1",
    "kind": "RLTrainingJob",
    "metadata": {"name": "cartpole"},
    "spec": {
        "algorithm": {"impala": {}},
        "environment": {"id": "CartPole-v1"},
        "sampler": {"replicas": 2},
        "stop": {"environmentSteps": 2_000_000, "meanReturn": {"atLeast": 475, "episodes": 100}},
    },
}


def job(**spec: Any) -> RLTrainingJob:
    return RLTrainingJob.model_validate(SHORTEST | {"spec": SHORTEST["spec"] | spec})


def dedicated(algorithm: str) -> dict[str, Any]:
    """An algorithm whose replay lies in pods of their own."""
    return {algorithm: {"replay": {"placement": "Dedicated"}}}


def template(
    trainer: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    spec = ({"containers": [{"name": "trainer", **trainer}]} if trainer else {}) | spec
    return {"sampler": {"template": {"metadata": metadata or {}, "spec": spec}}}


def test_the_shortest_job_has_every_default_and_survives_being_written_and_read() -> None:
    spec = job().spec
    assert (spec.algorithm.name, spec.algorithm.title, spec.algorithm.parameters) == (
        "impala",
        "impala",
        Impala(),
    )
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


def test_published_values() -> None:
    """Those that no paper's reader may find changed; `make crd` would accept a change."""
    impala, dqn, a3c, a2c, ppo = Impala(), DqnApex(), A3c(), A2c(), Ppo()
    assert (impala.discount, impala.unroll_length, impala.learning_rate) == (0.99, 20, 6e-4)
    assert (impala.gradient_clip, impala.entropy_cost, impala.baseline_cost) == (40, 0.01, 0.5)
    assert (dqn.n_step, dqn.batch_size, dqn.replay.capacity) == (3, 512, 2_000_000)
    assert (dqn.exploration_epsilon, dqn.exploration_alpha, dqn.learning_rate) == (0.4, 7, 0.0000625)
    assert impala.optimizer.rmsprop is not None
    assert dqn.optimizer.rmsprop is not None
    assert (impala.optimizer.rmsprop.epsilon, dqn.optimizer.rmsprop.centered) == (0.01, True)
    assert (a3c.rollout_length, a3c.loss_reduction, a3c.n_step, a3c.gae_lambda) == (5, "Sum", None, 1)
    assert (a2c.rollout_length, a2c.loss_reduction, a2c.gradient_clip) == (5, "Mean", 0.5)
    assert (ppo.rollout_length, ppo.epochs, ppo.minibatches, ppo.clip_range) == (128, 3, 4, 0.1)
    assert (ppo.gae_lambda, ppo.target_kl, ppo.baseline_cost) == (0.95, None, 1)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"algorithm": {"a2c": {"aggregate": {"maxStaleness": 0}}}},
            "maxStaleness is for mode Async: in mode Sync no gradient is older than the parameters: leave it out, got 0",
        ),
        (
            {"algorithm": {"a3c": {"aggregate": {"mode": "Sync"}}}},
            "count must be null or at least 2 in mode Sync: null takes one gradient of each sampler",
        ),
        ({"algorithm": {"a3c": {"nStep": 5, "gaeLambda": 0.95}}}, "gaeLambda must be 1 with nStep"),
        (
            {"algorithm": {"ppo": {"rolloutLength": 2}}, "environment": {"id": "CartPole-v1", "numEnvs": 1}},
            "ppo.minibatches must be at most rolloutLength x environment.numEnvs, the steps of a rollout, got 4",
        ),
        (
            {
                "algorithm": {"ppo": {}},
                "environment": {"id": "CartPole-v1", "numEnvs": 3},
                "network": {"mlp": {}, "lstm": {}},
            },
            "ppo.minibatches must be at most environment.numEnvs with network.lstm: sequences are not cut, got 4",
        ),
        ({"algorithm": {"impala": {"optimizer": {}}}}, "exactly one optimizer is needed, found none"),
        ({"network": {"lstm": {}}}, "exactly one network is needed, found none"),
        (
            {"algorithm": {"impala": {"learningRateSchedule": "Linear"}}, "stop": {"seconds": 9}},
            "learningRateSchedule Linear needs stop.environmentSteps",
        ),
        ({"algorithm": {"dqnApex": {}}, "replay": {"replicas": 2}}, "replay is for dqnApex or ddpgApex with"),
        (
            {"algorithm": {"ddpgApex": {}}, "network": {"mlp": {}, "lstm": {}}},
            "network.lstm does not go with",
        ),
        (
            {"algorithm": {"dqnApex": {"replay": {"minimum": 3_000_000}}}},
            "replay.capacity must be at least replay.minimum (3000000), got 2000000",
        ),
        (
            {"algorithm": {"ddpgApex": {"batchSize": 20_000}}},
            "replay.minimum must be at least batchSize (20000), got 10000",
        ),
        (
            {"environment": {"id": "PongNoFrameskip-v4", "atari": {}}},
            "atari is for games of the Arcade Learning Environment: environment.id ALE/<Game>-v5, got PongNo",
        ),
        (
            {"environment": {"id": "ALE/Pong-v5", "kwargs": {"frameskip": 4}}},
            "kwargs.frameskip is not for ALE/Pong-v5: set atari.frameSkip instead",
        ),
        (
            {"environment": {"id": "ALE/Pong-v5", "atari": {}, "kwargs": {"batch_size": 4}}},
            "kwargs.batch_size is not for ALE/Pong-v5: leave it out",
        ),
        ({"stop": {}}, "at least one rule is needed"),
        ({"checkpoint": {"uri": "s3://b/p", "volume": {"claimName": "c"}}}, "exclude each other"),
        ({"checkpoint": {"volume": {}}}, "exactly one claim is needed"),
        (template(containers={"name": "x"}), "containers must be a list of objects, each with a name"),
        (template(volumes=[{"name": "../x"}]), "volumes: a name must be lower-case letters, digits and '-'"),
        (template({"env": [{"name": ["A"]}]}), "env must be a list"),
        (template({"env": None}), "env must be a list"),
        (template({"volumeMounts": [{"name": "x"}]}), "each with a mountPath"),
        (template(securityContext=None), "securityContext must be an object"),
        (template(metadata={"labels": None}), "labels must be an object of texts"),
        (template(metadata={"annotations": {"a": 1}}), "annotations must be an object of texts"),
        (
            {"checkpoint": {"volume": {"claimTemplate": {"metadata": {"labels": []}, "spec": {}}}}},
            "labels must be an object of texts",
        ),
    ],
)
def test_rules_between_fields(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        job(**spec)
    assert sentence in str(caught.value)


def test_games_are_preprocessed_as_published_unless_atari_says_otherwise() -> None:
    def preprocessing(**environment: Any) -> Atari | None:
        return job(environment=environment).spec.environment.preprocessing

    published = preprocessing(id="ALE/Pong-v5")
    assert published == Atari()
    assert (published.frame_skip, published.frame_stack, published.screen_size) == (4, 4, 84)
    assert (published.sticky_actions, published.noop_max) == (0.25, 30)
    changed = preprocessing(id="ALE/MsPacman-v5", atari={"stickyActions": 0}, kwargs={"num_threads": 2})
    assert changed == Atari(sticky_actions=0)
    for id in ("CartPole-v1", "PongNoFrameskip-v4", "ale_py:ALE/Pong-v5"):
        assert preprocessing(id=id, kwargs={"frameskip": 4}) is None


@pytest.mark.parametrize(
    ("model", "fields", "sentence"),
    [
        (A3c, {"epochs": 3}, "Extra inputs are not permitted"),
        (Optimizer, {"rmsprop": {}, "adam": {}}, "found two: rmsprop and adam"),
        (Optimizer, {"adam": {}, "sgd": {}}, "found two: adam and sgd"),
        (Sgd, {"momentum": 1}, "less than 1"),
    ],
)
def test_rules_of_parts(model: type[Any], fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        model.model_validate(fields)


def test_what_an_aggregate_may_be() -> None:
    assert A3c().aggregate == A3cAggregate(mode="Async", count=1)
    assert A2c().aggregate == Ppo().aggregate == Aggregate(mode="Sync", count=None)
    slow = {"mode": "Async", "count": None, "maxStaleness": 0, "queueCapacity": 8}
    for algorithm in ("a3c", "a2c"):
        assert job(algorithm={algorithm: {"aggregate": slow}}).spec.algorithm.name == algorithm
    in_step = A3c.model_validate({"aggregate": {"mode": "Sync", "count": None}})
    assert A3c.model_validate(in_step.to_dict()) == in_step, "null is not the default, and has to be written"
    assert A3c.model_validate({"aggregate": {"maxStaleness": 4}}).aggregate.count == 1
    assert A3c.model_validate({"nStep": 3}).gae_lambda == 1
    assert A2c.model_validate({"gaeLambda": 0.9}).n_step is None


def test_a_users_algorithm_keeps_its_parameters_as_they_are() -> None:
    entry = {"module": "my_package.algorithm", "parameters": {"width": 3, "schedule": [None, {"a_b": 1}]}}
    made = job(algorithm={"entryPoint": entry})
    assert (made.spec.algorithm.name, made.spec.algorithm.title) == ("entryPoint", "my_package.algorithm")
    assert made.spec.algorithm.parameters == UserAlgorithm.model_validate(entry)
    assert made.to_dict()["spec"]["algorithm"] == {"entryPoint": entry}
    assert UserAlgorithm(module="a").parameters == {}


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 0),
        ({"algorithm": {"dqnApex": {}}}, 0),
        ({"algorithm": dedicated("dqnApex")}, 1),
        ({"algorithm": dedicated("ddpgApex"), "replay": {"replicas": 3}}, 3),
    ],
)
def test_only_a_dedicated_replay_has_pods(spec: dict[str, Any], count: int) -> None:
    made = job(**spec).spec
    assert {role: made.replicas(role) for role in ROLES} == {"learner": 1, "replay": count, "sampler": 2}


def test_each_role_has_its_template() -> None:
    marked = {role: {"template": {"metadata": {"labels": {"role": role}}}} for role in ROLES}
    made = job(algorithm=dedicated("dqnApex"), **marked).spec
    assert {role: made.template(role).metadata["labels"]["role"] for role in ROLES} == {r: r for r in ROLES}
    assert job(algorithm=dedicated("dqnApex")).spec.template("replay").spec == {}


def failure_policy(**requirement: Any) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": [{"action": "Ignore", **requirement}]}}


def test_pod_failure_policy_reads_as_in_batch_v1() -> None:
    policy = failure_policy(onPodConditions=[{"type": "DisruptionTarget"}])
    parsed = job(runPolicy=policy).spec.run_policy.pod_failure_policy
    assert parsed is not None
    assert parsed.rules[0].on_pod_conditions is not None
    assert parsed.rules[0].on_pod_conditions[0].status == "True"


@pytest.mark.parametrize(
    "requirement",
    [
        {},
        {"onExitCodes": {"operator": "In", "values": [0]}},
        {"onExitCodes": {"operator": "In", "values": [3, 3]}},
        {"onExitCodes": {"operator": "In", "values": []}},
        {"onExitCodes": {"operator": "In", "values": [1]}, "onPodConditions": [{"type": "X"}]},
    ],
)
def test_pod_failure_policy_refuses_as_batch_v1_does(requirement: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        job(runPolicy=failure_policy(**requirement))


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({}, "exactly one scheduler is needed, found none: set one of kueue, volcano, coscheduling"),
        ({"kueue": {"queueName": "a"}, "volcano": {}}, "found two: kueue and volcano"),
        ({"kueue": {}}, "queueName"),
        ({"kueue": {"queueName": "No Queue"}}, "pattern"),
        ({"volcano": {"minAvailable": 0}}, "greater than or equal to 1"),
        ({"coscheduling": {"scheduleTimeoutSeconds": 0}}, "greater than or equal to 1"),
    ],
)
def test_a_scheduling_policy_is_one_of_three(policy: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        job(runPolicy={"schedulingPolicy": policy})


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("demo-learner-0", ("learner", 0)),
        ("demo-replay-3", ("replay", 3)),
        ("demo-sampler-12", ("sampler", 12)),
        ("demo-sampler-01", None),
        ("demo-sampler-", None),
        ("demo-sampler-x", None),
        ("other-sampler-1", None),
        ("demo-critic-1", None),
        ("demo", None),
    ],
)
def test_a_pods_name_tells_its_role_and_index(name: str, found: tuple[str, int] | None) -> None:
    assert parse_pod_name("demo", name) == found


def test_the_last_sampler_of_the_longest_name_is_a_dns_label() -> None:
    assert len(pod_name("a" * NAME_MAX, "sampler", SAMPLERS_MAX - 1)) == 63


def test_a_status_survives_being_written_and_read() -> None:
    status = Status(phase="Running", ledger=(LedgerEntry(pod="a-sampler-0", uid="u", restarts=2),))
    assert Status.model_validate(status.to_dict()) == status


def test_what_a_job_does_not_have_is_not_in_its_status() -> None:
    assert not {"replay", "replayPods"} & Status().to_dict().keys()
    assert Status().of_role("replay") == RoleStatus()
    whole = Status(replay=ReplayStatus(shards=2, replay_ratio=0.8), replay_pods=RoleStatus(ready=2))
    assert whole.to_dict()["replay"]["replayRatio"] == 0.8
    assert whole.of_role("replay").ready == 2


@given(st.floats())
def test_measurements_that_json_has_not_become_none(value: float) -> None:
    assert Progress(mean_return=value).mean_return == (value if math.isfinite(value) else None)
