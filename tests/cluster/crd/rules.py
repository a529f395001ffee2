"""For each CEL rule of the CRD that judges a job by itself: one job that obeys it, and one that breaks only it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schema_walk import DEDICATED, ROOT, SHORTEST, Json, choices, example, job, nodes

CLAIM = {"claimName": "a"}
EXIT_CODES = "spec.runPolicy.podFailurePolicy.rules[0].onExitCodes"


@dataclass(frozen=True)
class RuleCase:
    """Two jobs for one rule."""

    where: str
    """Path of the object that the rule judges; empty for the job itself."""
    message: str
    """How the rule's message begins."""
    good: Json
    bad: Json


def rules(*, of_changes: bool = False) -> list[tuple[str, str]]:
    """Path and message of every rule in the schema: of those that judge a job by itself, or else a change."""
    found = [("", rule) for rule in ROOT["x-kubernetes-validations"]]
    found += [
        (node.name, rule) for node in nodes() for rule in node.schema.get("x-kubernetes-validations", ())
    ]
    return [(path, rule["message"]) for path, rule in found if ("oldSelf" in rule["rule"]) == of_changes]


def spec(**parts: object) -> Json:
    """A job with these parts of its spec."""
    return job(SHORTEST | parts)


def algorithm(name: str, **parameters: object) -> Json:
    """A job with this algorithm."""
    return spec(algorithm={name: parameters})


def exit_codes(operator: str, *values: int) -> Json:
    """A job with a rule for these exit codes."""
    rule = {"action": "Count", "onExitCodes": {"operator": operator, "values": list(values)}}
    return spec(runPolicy={"podFailurePolicy": {"rules": [rule]}})


def cases() -> Iterator[RuleCase]:
    """All of them."""
    yield RuleCase("", "metadata.name must have", job(SHORTEST, "a" * 50), job(SHORTEST, "a" * 51))
    yield RuleCase("", "metadata.name must be", job(SHORTEST, "a-1"), job(SHORTEST, "1-a"))
    yield from _unions()
    yield from _of_algorithms()
    yield from _of_gradients()
    yield RuleCase(
        "spec.environment", "atari is for games", _atari("ALE/Pong-v5"), _atari("PongNoFrameskip-v4")
    )
    two = {"replicas": 2}
    yield RuleCase("spec", "replay is for", job(DEDICATED | {"replay": two}), spec(replay=two))
    yield RuleCase(
        "spec",
        "replay is for",
        spec(replay=two, algorithm={"ddpgApex": {"replay": {"placement": "Dedicated"}}}),
        spec(replay=two, algorithm={"dqnApex": {}}),
    )
    lstm = {"mlp": {}, "lstm": {}}
    for key in ("dqnApex", "ddpgApex"):
        yield RuleCase(
            "spec", "network.lstm does not", spec(network=lstm), spec(network=lstm, algorithm={key: {}})
        )
    yield RuleCase("spec.stop", "at least one rule", spec(stop={"seconds": 1}), spec(stop={}))
    uri = {"uri": "s3://b/p"}
    yield RuleCase(
        "spec.checkpoint",
        "uri and volume exclude",
        spec(checkpoint=uri),
        spec(checkpoint=uri | {"volume": CLAIM}),
    )
    yield RuleCase(EXIT_CODES, "values must not hold 0", exit_codes("NotIn", 0), exit_codes("In", 0, 1))


def _unions() -> Iterator[RuleCase]:
    """Wherever exactly one of several is to be set: one is right, none is wrong, and so are two."""
    for node in nodes():
        if not (keys := choices(node.schema)):
            continue
        good = example(node.schema)
        none = {key: value for key, value in good.items() if key not in keys}
        two = none | {key: example(node.schema["properties"][key]) for key in keys[-2:]}
        for bad in (none, two):
            yield RuleCase(node.name, "exactly one", node.manifest(good), node.manifest(bad))


def _of_algorithms() -> Iterator[RuleCase]:
    for key in ("dqnApex", "ddpgApex"):
        yield RuleCase(
            f"spec.algorithm.{key}.replay",
            "replay.capacity must be",
            algorithm(key, replay={"minimum": 600, "capacity": 600}),
            algorithm(key, replay={"minimum": 600, "capacity": 599}),
        )
        yield RuleCase(
            f"spec.algorithm.{key}",
            "replay.minimum must be",
            algorithm(key, replay={"minimum": 600}, batchSize=600),
            algorithm(key, replay={"minimum": 600}, batchSize=601),
        )
    yield RuleCase(
        "spec.algorithm.impala",
        "rhoClip must be",
        algorithm("impala", rhoClip=0.5, cClip=0.5),
        algorithm("impala", rhoClip=0.5),
    )
    for key in ("a3c", "a2c", "ppo", "impala"):
        linear = algorithm(key, learningRateSchedule="Linear")
        endless = job(linear["spec"] | {"stop": {"seconds": 1}})
        yield RuleCase("spec", "learningRateSchedule Linear", linear, endless)


def _of_gradients() -> Iterator[RuleCase]:
    """What the algorithms whose samplers send gradients have in common, and what each has alone."""
    for key in ("a3c", "a2c", "ppo"):
        where = f"spec.algorithm.{key}.aggregate"
        in_step: Json = {"mode": "Sync", "count": None} if key == "a3c" else {"mode": "Sync"}
        good = algorithm(key, aggregate=in_step)
        yield RuleCase(
            where, "maxStaleness is for", good, algorithm(key, aggregate=in_step | {"maxStaleness": 0})
        )
        yield RuleCase(
            where, "queueCapacity must be 0", good, algorithm(key, aggregate=in_step | {"queueCapacity": 1})
        )
    yield RuleCase(
        "spec.algorithm.a3c.aggregate",
        "count must be null",
        algorithm("a3c", aggregate={"mode": "Sync", "count": 2}),
        algorithm("a3c", aggregate={"mode": "Sync"}),
    )
    for key in ("a3c", "a2c"):
        yield RuleCase(
            f"spec.algorithm.{key}",
            "gaeLambda must be 1",
            algorithm(key, nStep=3),
            algorithm(key, nStep=3, gaeLambda=0.5),
        )
    yield RuleCase(
        "spec.algorithm.ppo",
        "ppo needs aggregate.mode Sync",
        algorithm("ppo", aggregate={"mode": "Sync"}),
        algorithm("ppo", aggregate={"mode": "Async"}),
    )
    yield from _of_minibatches()


def _of_minibatches() -> Iterator[RuleCase]:
    ppo = {"rolloutLength": 3, "minibatches": 6}
    two, one = (SHORTEST["environment"] | {"numEnvs": count} for count in (2, 1))
    yield RuleCase(
        "spec",
        "ppo.minibatches must be at most rolloutLength",
        spec(algorithm={"ppo": ppo}, environment=two),
        spec(algorithm={"ppo": ppo}, environment=one),
    )
    recurrent = {"algorithm": {"ppo": {"minibatches": 2}}, "network": {"mlp": {}, "lstm": {}}}
    yield RuleCase(
        "spec",
        "ppo.minibatches must be at most environment.numEnvs",
        spec(**recurrent, environment=two),
        spec(**recurrent, environment=one),
    )


def _atari(id: str) -> Json:
    return spec(environment={"id": id, "atari": {}})
