"""The bottleneck of a run, from its status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import refused
from rltraining.why import bottleneck
from rltraining_api.autoscale import AutoscaleStatus
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import read_job

IMPALA: dict[str, Any] = {"algorithm": {"impala": {}}}


def job(
    percent: float | None,
    samplers: int = 3,
    spec: dict[str, Any] = IMPALA,
    steps: int = 9,
    rate: float = 50.0,
    preset: str | None = None,
) -> RLTrainingJob:
    return read_job(
        {
            "apiVersion": "rltraining.dev/v1alpha1",
            "kind": "RLTrainingJob",
            "metadata": {"name": "cartpole"},
            "spec": {
                "environment": {"id": "CartPole-v1", "numEnvs": 8},
                "sampler": {"replicas": samplers},
                "stop": {"environmentSteps": 1000},
                **spec,
            },
            "status": {
                "phase": "Running",
                "preset": preset,
                "progress": {
                    "environmentSteps": steps,
                    "stepsPerSecond": rate,
                    "learnerWaitPercent": percent,
                },
            },
        }
    )


@pytest.mark.parametrize(
    ("percent", "samplers", "cores", "first"),
    [
        (
            3.4,
            3,
            8,
            "The learner is the bottleneck: the learner waits for data only 3% of the time, so that more samplers add",
        ),
        (30.0, 3, 8, "Learner and samplers are balanced: the learner waits for data 30% of the time."),
        (90.0, 3, 8, "The samplers are the bottleneck: the learner waits for data 90% of the time."),
        (90.0, 3, None, "The samplers are the bottleneck"),
        (
            90.0,
            3,
            2,
            "The cores of this machine or the samplers are the bottleneck: the learner waits for data 90% of the time, and 4 p",
        ),
        (90.0, 1, 2, "The samplers are the bottleneck"),
    ],
)
def test_the_bottleneck_is_named(percent: float, samplers: int, cores: int | None, first: str) -> None:
    sentence, remedy, *_ = bottleneck(job(percent, samplers), cores).split("\n")
    assert sentence.startswith(first)
    assert remedy.startswith("Faster: ")


@pytest.mark.parametrize(
    ("algorithm", "remedy"),
    [
        ("ppo", "fewer updates for each step (spec.algorithm.ppo.epochs), or more learners"),
        ("sac", "fewer updates for each step (spec.algorithm.sac.replay.samplesPerInsert), or more learners"),
        ("impala", "a smaller network, or more learners"),
    ],
)
def test_a_busy_learner_is_relieved_by_a_field_of_its_algorithm(algorithm: str, remedy: str) -> None:
    assert remedy in bottleneck(job(3.0, spec={"algorithm": {algorithm: {}}}), 8)


@pytest.mark.parametrize(
    ("settings", "preset", "is_named"),
    [
        ({}, "Classic", True),
        ({"updatesPerBatch": 1}, "Classic", False),
        ({"updatesPerBatch": 2}, None, True),
        ({}, "Atari", False),
    ],
)
def test_a_learner_of_impala_with_several_updates_of_each_batch_can_make_fewer(
    settings: dict[str, Any], preset: str | None, is_named: bool
) -> None:
    told = bottleneck(job(3.0, spec={"algorithm": {"impala": settings}}, preset=preset), 8)
    assert ("fewer updates for each step (spec.algorithm.impala.updatesPerBatch), or" in told) == is_named


@pytest.mark.parametrize(
    ("cores", "threads", "remedy"),
    [
        (
            8,
            None,
            "Faster: a GPU or more threads (spec.learner.threads, now 1) if the network is large, a smaller",
        ),
        (
            8,
            4,
            "Faster: a GPU or more threads (spec.learner.threads, now 4) if the network is large, a smaller",
        ),
        (8, 5, "Faster: a GPU if the network is large, a smaller"),
        (
            None,
            5,
            "Faster: a GPU or more threads (spec.learner.threads, now 5) if the network is large, a smaller",
        ),
    ],
)
def test_a_busy_learner_may_use_the_cores_that_are_free(
    cores: int | None, threads: int | None, remedy: str
) -> None:
    assert remedy in bottleneck(job(3.0, spec=IMPALA | {"learner": {"threads": threads}}), cores)


def test_the_remedy_names_the_fields_and_their_values() -> None:
    assert bottleneck(job(90.0), 8).endswith(
        "more samplers (spec.sampler.replicas, now 3; about 30 keep the learner busy, with a larger "
        "spec.algorithm.impala.batchUnrolls or maxPolicyLag), or more environments in each "
        "(spec.environment.numEnvs).\n"
        "If a step of an environment takes a millisecond or more: spec.environment.stepping: Threads or Processes."
    )


@pytest.mark.parametrize(
    ("percent", "samplers", "estimate"),
    [
        (60.0, 1, "now 1; about 3 keep the learner busy)"),
        (75.0, 2, "now 2; about 8 keep the learner busy)"),
        (99.0, 2, "now 2)"),
        (
            64.0,
            15,
            "now 15; about 42 keep the learner busy, with a larger spec.algorithm.impala.batchUnrolls or",
        ),
    ],
)
def test_the_number_of_samplers_that_a_learner_needs_is_estimated(
    percent: float, samplers: int, estimate: str
) -> None:
    assert estimate in bottleneck(job(percent, samplers), None)


@pytest.mark.parametrize(
    ("samplers", "cores", "remedy"),
    [
        (
            1,
            2,
            "Faster: more samplers (spec.sampler.replicas, now 1; about 2 keep the learner busy), and then a faster",
        ),
        (3, 2, "Faster: more samplers together with a faster learner."),
        (
            30,
            2,
            "Faster: a larger spec.algorithm.impala.batchUnrolls or maxPolicyLag, since only 16 of 30 samplers can collect at "
            "a time, and then a faster learner.",
        ),
    ],
)
def test_a_learner_that_waits_sometimes_is_faster_with_more_data(
    samplers: int, cores: int, remedy: str
) -> None:
    assert remedy in bottleneck(job(40.0, samplers), cores)


@pytest.mark.parametrize("cores", [2, None])
def test_more_samplers_without_credits_are_no_remedy(cores: int | None) -> None:
    spec = {"algorithm": {"a3c": {"aggregate": {"maxPolicyLag": 4}}}}
    told = bottleneck(job(94.0, 3, spec), cores)
    assert (
        "a larger spec.algorithm.a3c.aggregate.maxPolicyLag, since only 2 of 3 samplers can collect" in told
    )
    assert "more samplers" not in told


def test_the_cores_of_a_machine_may_be_idle_while_environments_wait() -> None:
    assert bottleneck(job(94.0), 2).endswith(
        "\nFaster: more cores, or fewer samplers with more environments in each (spec.sampler.replicas, now 3; "
        "spec.environment.numEnvs).\nIf the cores are not busy, because steps of the environments wait: more samplers "
        "(spec.sampler.replicas, now 3; about 50 keep the learner busy, with a larger spec.algorithm.impala.batchUnrolls or "
        "maxPolicyLag), or spec.environment.stepping: Threads or Processes."
    )


@pytest.mark.parametrize("cores", [2, 8])
def test_samplers_from_which_nothing_arrives_may_be_stuck(cores: int) -> None:
    told = bottleneck(job(100.0, rate=0.0), cores)
    assert "No steps have arrived in the last seconds." in told
    assert "rltrain stack" in told
    assert "rltrain stack" not in bottleneck(job(100.0), cores)


def test_with_ppo_more_samplers_enlarge_the_update_so_that_none_are_enough() -> None:
    assert "keep the learner busy" not in bottleneck(job(60.0, spec={"algorithm": {"ppo": {}}}), None)


@pytest.mark.parametrize(
    ("state", "field"),
    [
        ("Active", "(spec.sampler.autoscale.max, now 8;"),
        ("Overridden", "(spec.sampler.replicas, now 5;"),
    ],
)
def test_with_autoscale_the_remedy_names_the_bound_that_holds_samplers_back(state: str, field: str) -> None:
    autoscale = {
        **{"target": 5, "state": state, "window": {"since": "2026-01-01T00:00:00Z"}},
        **{"observedReplicas": 3, "observedMin": 1, "observedMax": 8},
    }
    spec = IMPALA | {"sampler": {"replicas": 3, "autoscale": {"max": 8}}}
    found = job(90.0, spec=spec)
    status = found.status.model_copy(update={"autoscale": AutoscaleStatus.model_validate(autoscale)})
    told = bottleneck(found.model_copy(update={"status": status}), 5)
    assert "and 6 processes share 5 cores" in told
    assert field in told


def test_ppo_has_a_bottleneck_although_its_learner_always_waits_for_a_while() -> None:
    ppo = {"algorithm": {"ppo": {}}}
    assert bottleneck(job(24.0, spec=ppo), 8).startswith("The learner is the bottleneck: the learner waits")
    assert bottleneck(job(60.0, spec=ppo), 8).startswith("The samplers are the bottleneck")


@pytest.mark.parametrize(
    ("algorithm", "first"),
    [
        ({"a2c": {"aggregate": {"mode": "Async", "count": 1}}}, "Learner and samplers are balanced"),
        ({"a3c": {"aggregate": {"mode": "Sync", "count": None}}}, "The learner is the bottleneck"),
    ],
)
def test_the_mode_decides_whether_learner_and_samplers_take_turns(
    algorithm: dict[str, Any], first: str
) -> None:
    assert bottleneck(job(24.0, spec={"algorithm": algorithm}), 8).startswith(first)


def test_without_a_measurement_the_reason_is_named() -> None:
    assert bottleneck(job(None, steps=5), 2) == "Unknown: no training has been measured yet (phase Running)."
    own = {"algorithm": {"entryPoint": {"module": "reinforce"}}}
    assert "that trains with `run.train`" in bottleneck(job(None, spec=own), 2)


def test_while_no_steps_have_arrived_the_number_is_named_that_a_sampler_sends_together() -> None:
    settings = {"algorithm": {"ppo": {"rolloutLength": 1024}}, "environment": {"id": "A-v0", "numEnvs": 8}}
    told = bottleneck(job(None, steps=0, spec=settings), 2)
    assert "sends its steps together: 8,192 (rolloutLength 1024 x numEnvs 8)." in told
    assert "sends its steps together. To" in bottleneck(job(None, steps=0), 2)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    assert "holds no run: name the folder of a run" in refused("why", tmp_path)


def test_a_name_that_is_neither_a_run_nor_a_job_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    told = refused("why", "frist", code=3)
    assert told.startswith(
        "frist: no folder here holds such a run, and as a job in a cluster it cannot be read: no cluster"
    )
