"""`--set path=value`, and the YAML of the values."""

from __future__ import annotations

from typing import Any

import pytest
from rltraining_api import yaml_text
from rltraining_api.manifest import ManifestError, apply_overrides, load_manifest

GOOD = """\
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {name: cartpole}
spec:
  algorithm: {impala: {}}
  environment: {id: CartPole-v1}
  network: {mlp: {hiddenSizes: [64, 32]}}
  stop: {environmentSteps: 2000000, meanReturn: {atLeast: 475}}
"""


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("spec.stop.environmentSteps=1000", "spec.stop.environment_steps", 1000),
        ("stop.environmentSteps=1e3", "spec.stop.environment_steps", 1000),
        ("environment.kwargs.goal=[1, 2]", "spec.environment.kwargs", {"goal": [1, 2]}),
        ("algorithm.impala.learningRate=1e-3", "spec.algorithm.impala.learning_rate", 0.001),
        ("algorithm.impala.gradientClip=null", "spec.algorithm.impala.gradient_clip", None),
        ("network.mlp.hiddenSizes[1]=8", "spec.network.mlp.hidden_sizes", (64, 8)),
        ("network.mlp.hiddenSizes=[8]", "spec.network.mlp.hidden_sizes", (8,)),
        ("stop.meanReturn=null", "spec.stop.mean_return", None),
        ("metadata.name=acrobot", "metadata.name", "acrobot"),
        ("checkpoint.uri=s3://b/x?y=z", "spec.checkpoint.uri", "s3://b/x?y=z"),
    ],
)
def test_an_override_takes_effect(assignment: str, path: str, value: object) -> None:
    found: Any = load_manifest(GOOD, [assignment])
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value


@pytest.mark.parametrize("assignment", ["algorithm=ppo", "spec.algorithm=ppo", "algorithm={ppo: {}}"])
def test_the_name_of_an_algorithm_replaces_the_algorithm(assignment: str) -> None:
    tuned = GOOD.replace("{impala: {}}", "{impala: {learningRate: 0.5}}")
    found = load_manifest(tuned, [assignment])
    default = load_manifest(GOOD.replace("{impala: {}}", "{ppo: {}}"))
    assert found.spec.algorithm == default.spec.algorithm
    changed = load_manifest(tuned, [assignment, "algorithm.ppo.epochs=7"])
    assert changed.spec.algorithm.ppo is not None
    assert changed.spec.algorithm.ppo.epochs == 7


def test_the_name_of_a_network_replaces_the_network() -> None:
    found = load_manifest(GOOD, ["network=natureCnn"])
    assert found.spec.network.name == "natureCnn"


def test_a_wrong_name_of_an_algorithm_is_reported_with_all_algorithms() -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(GOOD, ["algorithm=pppo"])
    assert "spec.algorithm.pppo: is not a known field: did you mean ppo? Known are a3c, a2c, ppo" in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("assignment", "meant"),
    [
        ("unrollLength=5", "spec.algorithm.impala.unrollLength"),
        ("algorithm.unrollLength=5", "spec.algorithm.impala.unrollLength"),
        ("numEnvs=4", "spec.environment.numEnvs"),
    ],
)
def test_a_field_of_the_algorithm_or_the_environment_is_suggested(assignment: str, meant: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(GOOD, [assignment])
    field = assignment.partition("=")[0]
    assert str(caught.value) == f"manifest: spec.{field}: is not a known field: did you mean {meant}?"


def test_a_field_of_another_algorithm_is_not_suggested() -> None:
    with pytest.raises(ManifestError, match=r"spec\.epochs: is not a known field: known are"):
        load_manifest(GOOD, ["epochs=3"])


NINES, SIZES = "9" * 5000, "network.mlp.hiddenSizes"
PROBLEMS = {
    "foo": "foo: must be path=value, as in environment.numEnvs=4",
    "a..b=1": "a..b=1: 'a..b' is not a path, as in spec.environment.numEnvs",
    "environment.id.x=3": "environment.id.x=3: spec.environment.id is not an object",
    "seed=1\n---\n2": "seed=1 --- 2: one value is needed, found several documents",
    f"seed={NINES}": f"seed={'9' * 72}...: line 1, column 1: is not a readable number: {'9' * 20}...",
    "stop[0]=3": "stop[0]=3: spec.stop is not a list",
    f"{SIZES}[2]=3": f"{SIZES}[2]=3: spec.{SIZES} has only 2 items",
    "seed=[": (
        "seed=[: line 1, column 2: is not valid YAML: "
        "expected the node content, but found '<stream end>', at: ["
    ),
}


@pytest.mark.parametrize(("assignment", "sentence"), PROBLEMS.items())
def test_an_override_that_cannot_be_made(assignment: str, sentence: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(GOOD, [assignment])
    assert str(caught.value) == f"--set {sentence}"


def test_overrides_leave_the_data_as_it_was() -> None:
    data = {"spec": {"stop": {"seconds": 1}}}
    changed = apply_overrides(data, ["stop.seconds=2", "stop.environmentSteps=3"])
    assert changed == {"spec": {"stop": {"seconds": 2, "environmentSteps": 3}}}
    assert data == {"spec": {"stop": {"seconds": 1}}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("2e6", 2_000_000),
        ("1.0", 1),
        (".5", 0.5),
        ("-1.5E+2", -150),
        ("1e400", float("inf")),
        ("2026-01-01", "2026-01-01"),
        ("'1e-3'", "1e-3"),
        ("1e", "1e"),
        ("0x10", 16),
        ("true", True),
        ("", None),
    ],
)
def test_scalars_are_what_kubernetes_makes_of_them(text: str, value: object) -> None:
    found = yaml_text.value(text)
    assert found == value
    assert type(found) is type(value)


def test_merge_keys_are_no_duplicates() -> None:
    (document,) = yaml_text.documents("base: &b {x: 1, y: 2}\nmine: {<<: *b, x: 3}\n")
    assert document["mine"] == {"x": 3, "y": 2}
