"""Defaults by task: the table is complete, a user's choice wins, and a resolved job obeys every rule."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from rltraining_api.base import by_task
from rltraining_api.crd import crd
from rltraining_api.fields import PRESETS, Preset
from rltraining_api.introspect import field_at
from rltraining_api.job import JobSpec, RLTrainingJob
from rltraining_api.preset_values import PRESET_VALUES
from rltraining_api.presets import resolve, unresolved

STEPS = {"environmentSteps": 1_000_000}
EACH = list(itertools.product(PRESET_VALUES, PRESETS))


def job(algorithm: str, settings: dict[str, Any] | None = None, **spec: Any) -> RLTrainingJob:
    settings = {"module": "mine"} if algorithm == "entryPoint" else settings or {}
    least = {"algorithm": {algorithm: settings}, "environment": {"id": "A-v0"}, "stop": STEPS}
    return RLTrainingJob.model_validate({"metadata": {"name": "a"}, "spec": least | spec})


@pytest.mark.parametrize(("algorithm", "preset"), EACH)
def test_a_preset_fills_in_each_field_that_depends_on_the_task(algorithm: str, preset: Preset) -> None:
    written = job(algorithm)
    resolved, sources = resolve(written, preset)
    assert set(sources) == set(unresolved(written.spec)), "the table and the models name the same fields"
    assert list(unresolved(resolved.spec)) == []
    assert resolved.spec.preset == preset
    assert RLTrainingJob.model_validate(resolved.to_dict()) == resolved
    assert resolve(resolved, preset) == (resolved, {})
    for path in sources:
        field = field_at(JobSpec, path.split(".")[1:])
        assert field is not None
        assert by_task(field), path


@pytest.mark.parametrize("stop", [STEPS, {"seconds": 60}], ids=["steps", "seconds"])
@pytest.mark.parametrize(("algorithm", "preset"), EACH)
def test_what_a_user_has_set_wins_and_goes_with_the_rest(algorithm: str, preset: Preset, stop: Any) -> None:
    """Uses values that differ from the presets', and that break a rule in combination with them."""
    settings = {
        "ppo": {"minibatches": 2, "rolloutLength": 3, "rewardClip": 7.0},
        "a2c": {"nStep": 2, "gradientClip": None},
        "a3c": {"nStep": 2, "optimizer": {"sgd": {"momentum": 0.5}}},
        "impala": {"gradientClip": None, "lambda": 0.5},
        "dqnApex": {"batchSize": 100_000, "replay": {"samplesPerInsert": None}},
        "ddpgApex": {"replay": {"capacity": 50, "samplesPerInsert": 3.0}, "gradientClip": 1.0},
        "r2d2": {"sequenceLength": 64, "nStep": 2},
        "sac": {"batchSize": 20_000, "replay": {"samplesPerInsert": None}},
        "td3": {"targetUpdatePeriod": 1, "replay": {"minimum": 500}},
        "entryPoint": {"module": "mine"},
    }[algorithm]
    network = {"mlp": {"hiddenSizes": [7]}} | ({"lstm": {}} if algorithm == "r2d2" else {})
    environment = {"id": "A-v0", "numEnvs": 3, "normalize": None}
    written = job(algorithm, settings, stop=stop, network=network, environment=environment)

    resolved = resolve(written, preset).job.to_dict()["spec"]

    found = resolved["algorithm"][algorithm]
    for key, value in settings.items():
        kept = {name: found[key][name] for name in value} if key in ("replay", "optimizer") else found[key]
        assert kept == value, key
    assert resolved["environment"]["numEnvs"] == 3
    assert resolved["environment"]["normalize"] is None
    assert resolved["network"]["mlp"]["hiddenSizes"] == [7]


@pytest.mark.parametrize(
    ("algorithm", "preset", "written", "found"),
    [
        ("dqnApex", "Classic", {"mlp": {}}, {"mlp": {"hiddenSizes": [256, 256], "activation": "Relu"}}),
        ("td3", "MuJoCo", {"mlp": {"hiddenSizes": [7]}}, {"mlp": {"hiddenSizes": [7], "activation": "Relu"}}),
        (
            *("ppo", "Atari", {"lstm": {}}),
            {
                "natureCnn": {"hiddenSize": 512, "gradientPrecision": "Float32"},
                "lstm": {"hiddenSize": 256},
            },
        ),
        ("ppo", "Atari", {"mlp": {}}, {"mlp": {"hiddenSizes": [64, 64], "activation": "Tanh"}}),
        (
            *("r2d2", "Classic", {"mlp": {"activation": "Elu"}}),
            {"mlp": {"hiddenSizes": [64], "activation": "Elu"}, "lstm": {"hiddenSize": 64}},
        ),
    ],
    ids=["sizes", "activation", "torso", "another torso", "LSTM"],
)
def test_what_a_user_leaves_out_of_a_network_is_the_presets(
    algorithm: str, preset: Preset, written: dict[str, Any], found: dict[str, Any]
) -> None:
    resolved = resolve(job(algorithm, network=written), preset).job
    assert resolved.to_dict()["spec"]["network"] == found


def test_an_optimizer_of_the_users_is_kept_as_it_is() -> None:
    """An API server has filled in its defaults, so that nothing in it looks unset."""
    resolved = resolve(job("ppo", {"optimizer": {"adam": {"beta1": 0.5}}}), "MuJoCo").job
    assert resolved.to_dict()["spec"]["algorithm"]["ppo"]["optimizer"] == {
        "adam": {"beta1": 0.5, "beta2": 0.999, "epsilon": 1e-8}
    }


def test_the_source_of_an_adjusted_value_names_the_cause() -> None:
    small, sources = resolve(job("dqnApex", {"replay": {"capacity": 500}}), "Classic")
    settings = small.spec.algorithm.dqn_apex
    assert settings is not None
    assert (settings.replay.minimum, settings.batch_size) == (500, 128)
    assert sources["spec.algorithm.dqnApex.replay.minimum"].endswith(", but replay.capacity is smaller")

    endless, sources = resolve(job("ppo", stop={"seconds": 60}), "Atari")
    ppo = endless.spec.algorithm.ppo
    assert ppo is not None
    assert (ppo.learning_rate_schedule, ppo.clip_range_schedule) == ("Constant", "Constant")
    assert sources["spec.algorithm.ppo.clipRangeSchedule"].endswith(", but stop.environmentSteps is not set")


@pytest.mark.parametrize(
    ("spec", "environments", "length"),
    [
        ({}, 1, 1024),
        ({"environment": {"id": "A-v0", "numEnvs": 16}}, 16, 64),
        ({"environment": {"id": "A-v0", "numEnvs": 1000}}, 1000, 16),
    ],
    ids=["default", "several", "many"],
)
def test_ppo_splits_the_rollout_of_one_environment(spec: Any, environments: int, length: int) -> None:
    resolved, sources = resolve(job("ppo", **spec), "MuJoCo")
    ppo = resolved.spec.algorithm.ppo
    assert ppo is not None
    assert (resolved.spec.environment.num_envs, ppo.rollout_length) == (environments, length)
    cause = f"environment.numEnvs is {environments}"
    assert sources["spec.algorithm.ppo.rolloutLength"].endswith(cause) == (environments > 1)


def test_ppo_keeps_the_rollout_length_of_the_user() -> None:
    spec = {"environment": {"id": "A-v0", "numEnvs": 16}}
    ppo = resolve(job("ppo", {"rolloutLength": 999}, **spec), "MuJoCo").job.spec.algorithm.ppo
    assert ppo is not None
    assert ppo.rollout_length == 999
    classic = resolve(job("ppo", **spec), "Classic").job.spec.algorithm.ppo
    assert classic is not None
    assert classic.rollout_length == 128


def test_an_api_server_does_not_fill_in_what_depends_on_the_task() -> None:
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for algorithm in PRESET_VALUES:
        for path in unresolved(job(algorithm).spec):
            node = schema
            for key in path.split(".")[1:]:
                node = node["properties"][key]
            assert "default" not in node, path
            assert not path.endswith(("Clip", "samplesPerInsert", "normalize")) or node["nullable"], path


@pytest.mark.parametrize("algorithm", PRESET_VALUES)
def test_the_models_own_defaults_are_those_of_atari(algorithm: str) -> None:
    """A job without a preset is complete too, without schedules, which need an end, and image settings."""
    written = job(algorithm)
    resolved = resolve(written, "Atari").job
    own, ataris = (
        each.model_dump(by_alias=True)["spec"]["algorithm"][algorithm] for each in (written, resolved)
    )
    exempt = ("Schedule", "rewardClip", "replay")
    assert [key for key in own if own[key] != ataris[key] and not key.endswith(exempt)] == []
