"""Each problem of a manifest is reported in one sentence: file, field, remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from good_manifest import GOOD
from hypothesis import given
from hypothesis import strategies as st
from rltraining_api.manifest import ManifestError, load_manifest, load_manifests, parse_job, read_job

CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: code}\n"

RULES = "{podFailurePolicy: {rules: [{action: Fail, onPodConditions: [{type: X}]}]}}"
PROBLEMS = {
    # Missing values
    ("", ""): "is empty: an RLTrainingJob is needed",
    ("name: cartpole", ""): "metadata.name: is required",
    ("  environment: {id: CartPole-v1}\n", ""): "spec.environment: is required",
    ("impala: {}", ""): (
        "spec.algorithm: exactly one algorithm is needed, found none: "
        "set one of a3c, a2c, ppo, dqnApex, ddpgApex, r2d2, sac, td3, impala, entryPoint"
    ),
    ("impala: {}", "impala: "): (
        "spec.algorithm.impala: is empty: write {} for its defaults, or leave it out"
    ),
    ("replicas: 2", "replicas: "): "spec.sampler.replicas: is empty: give a value, or leave it out",
    ("{impala: {}}", ""): "spec.algorithm: is empty: give a value",
    # Unknown fields
    ("replicas: 2", "replica: 2"): "spec.sampler.replica: is not a known field: did you mean replicas?",
    ("impala: {}", "impala: {learning_rate: 1e-3}"): (
        "spec.algorithm.impala.learning_rate: is not a known field: did you mean learningRate?"
    ),
    ("impala: {}", "sac2: {}"): (
        "spec.algorithm.sac2: is not a known field: did you mean sac? "
        "Known are a3c, a2c, ppo, dqnApex, ddpgApex, r2d2, sac, td3, impala, entryPoint"
    ),
    ("impala: {}", "reinforce: {}"): (
        "spec.algorithm.reinforce: is not a known field: "
        "known are a3c, a2c, ppo, dqnApex, ddpgApex, r2d2, sac, td3, impala, entryPoint"
    ),
    ("replicas: 2", "xyzzy: 2"): (
        "spec.sampler.xyzzy: is not a known field: known are replicas, autoscale, template"
    ),
    # Two fields of which only one is allowed, and incompatible values
    ("impala: {}", "impala: {}, a3c: {}"): (
        "spec.algorithm: exactly one algorithm is needed, found two: a3c and impala"
    ),
    ("impala: {}", "ppo: {aggregate: {mode: Async}}"): (
        "spec.algorithm.ppo: ppo needs aggregate.mode Sync: its samplers go through the minibatches of their rollouts "
        "together, got Async"
    ),
    ("impala: {}", "a2c: {aggregate: {queueCapacity: 4}}"): (
        "spec.algorithm.a2c.aggregate: queueCapacity must be 0 in mode Sync: each sampler waits for the update that its "
        "gradient is part of, got 4"
    ),
    ("impala: {}", "entryPoint: {module: 'mine:learner'}"): (
        "spec.algorithm.entryPoint.module: must be the name of a Python module, such as package.module, got "
        '"mine:learner"'
    ),
    ("impala: {}", "impala: {}}\n  replay: {replicas: 2"): (
        "spec: replay is for dqnApex, ddpgApex, r2d2, sac or td3 with replay.placement Dedicated: set that, or leave replay out"
    ),
    ("impala: {}", "dqnApex: {}}\n  network: {mlp: {}, lstm: {}"): (
        "spec: network.lstm does not go with dqnApex, ddpgApex, sac or td3: replayed transitions carry no recurrent "
        "state; leave it out, or use ppo, a2c, a3c, impala or, for Discrete actions, r2d2"
    ),
    # Wrong values
    ("replicas: 2", "replicas: -2"): "spec.sampler.replicas: must be at least 1, got -2",
    ("replicas: 2", "replicas: 20000"): "spec.sampler.replicas: must be at most 10000, got 20000",
    ("impala: {}", "impala: {learningRate: -1.0}"): (
        "spec.algorithm.impala.learningRate: must be more than 0, got -1"
    ),
    ("impala: {}", "impala: {learningRate: .inf}"): (
        "spec.algorithm.impala.learningRate: must be a finite number"
    ),
    ("impala: {}", "impala: {lossReduction: sum}"): (
        'spec.algorithm.impala.lossReduction: must be Sum or Mean, got "sum"'
    ),
    ("impala: {}", "impala: {rhoClip: 0.5}"): (
        "spec.algorithm.impala: rhoClip must be at least cClip (1), got 0.5"
    ),
    ("cartpole", "Cart_Pole"): (
        "metadata.name: must be lower-case letters, digits and '-', first a letter, "
        'last a letter or digit, got "Cart_Pole"'
    ),
    ("cartpole", "c" * 51): "metadata.name: must have at most 50 characters",
    ("CartPole-v1", "'Cart Pole'"): (
        'spec.environment.id: must be a gymnasium id such as CartPole-v1, or module:Id, got "Cart Pole"'
    ),
    ("  stop", f"  runPolicy: {RULES}\n  stop"): (  # the list itself is not blamed
        'spec.runPolicy.podFailurePolicy.rules[0].action: must be FailJob, Ignore or Count, got "Fail"'
    ),
    # Wrong types
    ("replicas: 2", "replicas: two"): 'spec.sampler.replicas: must be an integer, got "two"',
    ("replicas: 2", "replicas: true"): "spec.sampler.replicas: must be an integer, got true",
    ("{replicas: 2}", "2"): "spec.sampler: must be an object, got 2",
    ("{replicas: 2}", "[2]"): "spec.sampler: must be an object, got a list",
    ("id: CartPole-v1", "id: 3"): "spec.environment.id: must be text, got 3",
    ("impala: {}", "impala: {discount: high}"): (
        'spec.algorithm.impala.discount: must be a number, got "high"'
    ),
    ("impala: {}", "impala: {advantageNormalization: 1}"): (
        "spec.algorithm.impala.advantageNormalization: must be true or false, got 1"
    ),
    ("  sampler", "  network: {mlp: {hiddenSizes: 64}}\n  sampler"): (
        "spec.network.mlp.hiddenSizes: must be a list, got 64"
    ),
    ("  sampler", "  network: {mlp: {hiddenSizes: []}}\n  sampler"): (
        "spec.network.mlp.hiddenSizes: must have at least 1 item"
    ),
    ("  sampler", "  network: {mlp: {hiddenSizes: [-1]}}\n  sampler"): (
        "spec.network.mlp.hiddenSizes[0]: must be at least 1, got -1"
    ),
    # Not this resource
    ("kind: RLTrainingJob", "kind: RLTraningJob"): "kind: must be RLTrainingJob, got RLTraningJob",
    ("v1alpha1", "v1"): "apiVersion: must be rltraining.dev/v1alpha1, got rltraining.dev/v1",
    ("apiVersion: rltraining.dev/v1alpha1\n", ""): "apiVersion: is required: rltraining.dev/v1alpha1",
    (GOOD, CONFIG_MAP): "kind: must be RLTrainingJob, found ConfigMap code",
    (GOOD, GOOD + "---\n" + GOOD): "holds 2 jobs, but one is needed: split the file",
    (GOOD, "- a list"): "must be an object with apiVersion, kind, metadata and spec",
    # Not YAML
    ("replicas: 2", "replicas: 2, replicas: 3"): ("line 7, column 26: the key 'replicas' is repeated here"),
    ("sampler: {", "sampler: : {"): (
        "line 7, column 12: is not valid YAML: mapping values are not allowed here, "
        "at: sampler: : {replicas: 2}"
    ),
    ("  sampler", "\tsampler"): (
        "line 7, column 1: is not valid YAML: found a tab; YAML needs spaces, at: sampler: {replicas: 2}"
    ),
    ("replicas: 2", "1: 2"): "line 7, column 13: a key must be text: put it in quotes",
    ("replicas: 2", "replicas: \x01"): "line 7: holds a character that YAML forbids (#x0001)",
    ("v1}", "v1, wrappers: [{kwargs: {n: 1}}]}"): (
        "spec.environment.wrappers[0]: exactly one of name and entryPoint is needed"
    ),
    ("v1}", "v1, wrappers: [{name: ClipReward}, {entryPoint: Mine}]}"): (
        'spec.environment.wrappers[1].entryPoint: must be module:name, got "Mine"'
    ),
    ("CartPole-v1}", "ALE/Pong-v5, wrappers: [{name: ClipReward}]}"): (
        "spec.environment: wrappers are not for games of the Arcade Learning Environment, which are preprocessed in "
        "batches: set atari instead"
    ),
    # Not JSON
    ("v1}", "v1, wrappers: [{name: A, kwargs: {n: 1e400}}]}"): (
        "spec.environment.wrappers[0].kwargs.n: must be a finite number"
    ),
    ("v1}", "v1, kwargs: {n: [0, 1e400]}}"): "spec.environment.kwargs.n[1]: must be a finite number",
    ("v1}", 'v1, kwargs: {n: ["\\ud800"]}}'): (
        "spec.environment.kwargs.n[0]: must be Unicode text, got '\\ud800'"
    ),
    ("v1}", 'v1, kwargs: {"\\ud800": 1}}'): (
        "spec.environment.kwargs: keys must be Unicode text, got '\\ud800'"
    ),
    ("replicas: 2", f"replicas: {'9' * 5000}"): (
        "line 7, column 23: is not a readable number: 99999999999999999999..."
    ),
    ("v1}", "v1, kwargs: {n: !!binary aGk=}}"): (
        "spec.environment.kwargs.n: must be a JSON value, got Python's bytes: write it as text"
    ),
    ("{id: CartPole-v1}", "&a {id: CartPole-v1, kwargs: *a}"): (
        "spec.environment.kwargs: must not hold itself"
    ),
}


@pytest.mark.parametrize(("change", "sentence"), PROBLEMS.items(), ids=PROBLEMS.values())
def test_each_problem_is_one_sentence(change: tuple[str, str], sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "cartpole.yaml"
    file.write_text(GOOD.replace(*change) if change[0] else "# nothing\n---\n")
    with pytest.raises(ManifestError) as caught:
        load_manifest(file)
    assert str(caught.value) == f"{file}: {sentence}"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"\xff\xfe\xfa")
    for path, sentence in (
        (tmp_path / "nope", "nope: there is no such file"),
        (tmp_path, "is a folder, a file is needed"),
        (file, "job.yaml: is not UTF-8 text"),
    ):
        with pytest.raises(ManifestError, match=sentence):
            load_manifest(path)


def test_a_job_may_stand_beside_other_kinds() -> None:
    text = f"{CONFIG_MAP}---\n{GOOD}---\n"
    assert load_manifest(text).metadata.name == "cartpole"
    manifests = load_manifests(text)
    assert [job.metadata.name for job in manifests.jobs] == ["cartpole"]
    assert manifests.others[0]["kind"] == "ConfigMap"
    assert manifests.notes == ("ConfigMap code is not an RLTrainingJob and was not checked",)


def test_problems_of_all_jobs_in_a_file_are_told_at_once() -> None:
    bad = GOOD.replace("replicas: 2", "replicas: 0").replace("id: CartPole-v1", "id: 3")
    with pytest.raises(ManifestError) as caught:
        load_manifests(f"{bad}---\n{GOOD}---\n{bad}")
    assert caught.value.problems == (
        "manifest: job 1: spec.environment.id: must be text, got 3",
        "manifest: job 1: spec.sampler.replicas: must be at least 1, got 0",
        "manifest: job 3: spec.environment.id: must be text, got 3",
        "manifest: job 3: spec.sampler.replicas: must be at least 1, got 0",
    )


def test_what_kubectl_prints_can_be_read_back() -> None:
    extra = "metadata: {name: cartpole, creationTimestamp: null, managedFields: []}"
    text = GOOD.replace("metadata: {name: cartpole}", extra) + "status: {phase: Running, later: 1}\n"
    assert load_manifest(text).status.phase == "Pending"


def test_an_object_of_a_newer_version_can_be_read() -> None:
    job = load_manifest(GOOD)
    assert load_manifest(json.dumps(job.to_dict())) == job
    data = job.to_dict()
    data["spec"]["later"] = {"a": 1}
    data["status"] = {"phase": "Running", "later": True}
    assert read_job(data).status.phase == "Running"
    del data["spec"]["stop"]
    with pytest.raises(ManifestError, match=r"^spec\.stop: is required$"):
        read_job(data)


HEADER = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "a"}}
KEYS = ["apiVersion", "kind", "metadata", "spec", "name", "algorithm", "impala", "stop", "mlp", "rules"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["algorithm", "network", "stop", "runPolicy", "sampler"]), JSON))
def test_whatever_is_written_ends_in_a_job_or_in_sentences(spec: dict[str, object]) -> None:
    problems: tuple[str, ...] = ()
    try:
        parse_job(HEADER | {"spec": {"environment": {"id": "A-v0"}} | spec})
    except ManifestError as error:
        problems = error.problems or ("an error without a problem, Input should",)
    for problem in problems:
        assert not [words for words in ("\n", "pydantic", "Input should") if words in problem]


@given(st.text(max_size=40))
def test_whatever_text_is_read_ends_in_sentences(text: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(text)
    assert all(len(problem.splitlines()) == 1 for problem in caught.value.problems)
