"""Predictions for other numbers of samplers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import refused
from rltraining import workdir
from rltraining.errors import ClientError
from rltraining.plan import plan, predict
from rltraining_api import policy_lag
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import read_job


def job(
    waits: float | None,
    algorithm: dict[str, Any] | None = None,
    samplers: int = 2,
    learners: int = 1,
    **measured: float,
) -> RLTrainingJob:
    """A job that makes 1,000 steps/s."""
    progress = {"environmentSteps": 9, "stepsPerSecond": 1000.0, "learnerWaitPercent": waits, **measured}
    return read_job(
        {
            "apiVersion": "rltraining.dev/v1alpha1",
            "kind": "RLTrainingJob",
            "metadata": {"name": "maze"},
            "spec": {
                "algorithm": algorithm or {"impala": {}},
                "environment": {"id": "CartPole-v1"},
                "learner": {"replicas": learners},
                "sampler": {"replicas": samplers},
                "stop": {"environmentSteps": 1000},
            },
            "status": {"phase": "Running", "progress": progress},
        }
    )


@pytest.mark.parametrize("algorithm", [{"impala": {}}, {"sac": {}}])
def test_samplers_add_speed_until_the_learner_is_busy(algorithm: dict[str, Any]) -> None:
    found = predict(job(75.0, algorithm), [1, 2, 4, 8, 500])
    assert [one.steps_per_second for one in found] == pytest.approx([500, 1000, 2000, 4000, 4000])
    assert [one.learner_busy_percent for one in found] == pytest.approx([12.5, 25, 50, 100, 100])


def test_only_samplers_with_credits_add_speed() -> None:
    found = predict(job(99.0), [1, 16, 500])
    assert [one.steps_per_second for one in found] == pytest.approx([500, 8000, 8000])
    found = predict(job(95.0, {"impala": {"maxPolicyLag": 4}}, samplers=8), [1, 2, 8])
    assert [one.steps_per_second for one in found] == pytest.approx([500, 1000, 1000])
    assert policy_lag.samplers_with_credits(job(9.0, {"impala": {"batchUnrolls": 8, "maxPolicyLag": 1}})) == 4
    found = predict(job(95.0, {"impala": {"maxPolicyLag": 2}}, learners=2), [1, 2, 4])
    assert [one.steps_per_second for one in found] == pytest.approx([500, 1000, 1000])
    found = predict(job(99.0, {"a3c": {}}), [1, 8, 500])
    assert [one.steps_per_second for one in found] == pytest.approx([500, 4000, 4000])
    every = {"mode": "Async", "count": None}
    for algorithm in ({"a3c": {"aggregate": {"maxPolicyLag": None}}}, {"a2c": {"aggregate": every}}):
        assert policy_lag.samplers_with_credits(job(99.0, algorithm)) is None


@pytest.mark.parametrize(
    ("algorithm", "waits", "busy"),
    [
        ({"dqnApex": {"replay": {"samplesPerInsert": None}}}, 0.0, 100.0),
        ({"ppo": {"gradients": "Samplers"}}, 75.0, 25.0),
        ({"sac": {}}, 99.9, None),
    ],
)
def test_a_learner_that_does_not_hold_samplers_back_is_no_limit(
    algorithm: dict[str, Any], waits: float, busy: float | None
) -> None:
    found = predict(job(waits, algorithm), [1, 2, 500])
    assert [one.steps_per_second for one in found] == pytest.approx([500, 1000, 250_000])
    assert [one.learner_busy_percent for one in found] == [busy] * 3


def test_a2c_in_mode_async_does_not_take_turns() -> None:
    found = predict(job(75.0, {"a2c": {"aggregate": {"mode": "Async", "count": 1}}}), [1, 4, 500])
    assert [one.steps_per_second for one in found] == pytest.approx([500, 2000, 4000])


@pytest.mark.parametrize(
    "algorithm",
    [
        {"a2c": {}},
        {"ppo": {}},
        {"a3c": {"gradients": "Learner", "aggregate": {"mode": "Sync", "count": None}}},
    ],
)
def test_learner_and_samplers_that_take_turns_add_their_times(algorithm: dict[str, Any]) -> None:
    # With 2 samplers 0.75 s of each second are for collecting 1,000 steps, and 0.25 s for learning from them.
    found = predict(job(75.0, algorithm), [1, 2, 8])
    assert [one.steps_per_second for one in found] == pytest.approx(
        [500 / (0.75 + 0.125), 1000, 4000 / (0.75 + 1.0)]
    )
    assert found[2].learner_busy_percent == pytest.approx(100 / 1.75)


@pytest.mark.parametrize(
    ("algorithm", "lags"),
    [
        ({"impala": {}}, [2, 8, 16]),
        ({"impala": {"maxPolicyLag": 8}}, [2, 4, 4]),
        ({"impala": {"maxPolicyLag": 1}}, [1, 1, 1]),
        ({"impala": {"maxPolicyLag": None}}, [2, 8, 200]),
        ({"impala": {"batchUnrolls": 2}}, [1, 4, 16]),
        ({"a3c": {}}, [0, 3, 8]),
        ({"a3c": {"aggregate": {"queueCapacity": 8, "maxPolicyLag": 32}}}, [8, 11, 16]),
        ({"a3c": {"aggregate": {"maxPolicyLag": None}}}, [0, 3, 99]),
        ({"a2c": {"aggregate": {"mode": "Async", "count": 3}}}, [0, 1, 8]),
    ],
)
def test_credits_bound_the_policy_lag(algorithm: dict[str, Any], lags: list[float]) -> None:
    found = predict(job(75.0, algorithm), [1, 4, 100])
    assert [one.policy_lag for one in found] == lags
    assert predict(job(75.0, {"dqnApex": {}}), [1])[0].policy_lag is None


TRAFFIC = {"receivedBytesPerSecond": 4e4, "sentBytesPerSecond": 6e5}


@pytest.mark.parametrize("algorithm", [{"impala": {}}, {"sac": {}}, {"a3c": {}}])
def test_the_bytes_of_a_step_do_not_depend_on_the_number_of_samplers(algorithm: dict[str, Any]) -> None:
    for one in predict(job(75.0, algorithm, **TRAFFIC), [1, 2, 4, 500]):
        assert one.received_bytes_per_second == pytest.approx(40 * one.steps_per_second)
        assert one.sent_bytes_per_second == pytest.approx(600 * one.steps_per_second)


def test_parameters_sent_to_fewer_samplers_than_an_update_needs_are_not_predicted() -> None:
    fewer, enough, more = predict(job(75.0, {"impala": {"batchUnrolls": 2}}, **TRAFFIC), [1, 2, 500])
    assert fewer.sent_bytes_per_second is None
    assert fewer.received_bytes_per_second == pytest.approx(40 * fewer.steps_per_second)
    for one in (enough, more):
        assert one.sent_bytes_per_second == pytest.approx(600 * one.steps_per_second)


@pytest.mark.parametrize(
    ("algorithm", "learners", "measured", "is_received_known"),
    [
        ({"impala": {}}, 1, {}, False),
        ({"dqnApex": {"replay": {"samplesPerInsert": None}}}, 1, TRAFFIC, False),
        ({"impala": {"batchUnrolls": 3}}, 1, TRAFFIC, True),
        ({"impala": {"batchUnrolls": 2}}, 2, TRAFFIC, True),
        ({"a2c": {"aggregate": {"mode": "Async", "count": 3}}}, 1, TRAFFIC, True),
    ],
)
def test_bytes_that_are_unknown_or_not_in_proportion_to_the_steps_are_not_predicted(
    algorithm: dict[str, Any], learners: int, measured: dict[str, float], is_received_known: bool
) -> None:
    (found,) = predict(job(75.0, algorithm, learners=learners, **measured), [4])
    assert found.sent_bytes_per_second is None
    assert (found.received_bytes_per_second is not None) == is_received_known


@pytest.mark.parametrize(
    ("waits", "sentence"),
    [
        (
            3.0,
            "maze: its learner waits for data only 3% of the time, so that the speed of its samplers is unknown",
        ),
        (None, "maze: no training has been measured yet"),
    ],
)
def test_a_run_without_the_measurements_is_refused(waits: float | None, sentence: str) -> None:
    with pytest.raises(ClientError, match=sentence):
        predict(job(waits), [1])


def test_with_one_sampler_and_a_busy_learner_there_is_nothing_to_plan() -> None:
    with pytest.raises(ClientError, match="more samplers add nothing: rltrain why"):
        predict(job(3.0, samplers=1), [1])


def test_a_run_that_made_no_steps_at_last_is_refused() -> None:
    with pytest.raises(ClientError, match="maze: no steps arrived in the last seconds of the measurement"):
        predict(job(100.0, stepsPerSecond=0.0), [1])


@pytest.mark.parametrize(
    ("measured", "first", "second"),
    [
        ({}, "            -          -", "            -          -"),
        (TRAFFIC, "         0.02       0.30", "         0.16       2.40"),
    ],
)
def test_a_table_is_printed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    measured: dict[str, float],
    first: str,
    second: str,
) -> None:
    (tmp_path / workdir.JOB_FILE).write_text(workdir.SAVED_HEADER)
    (tmp_path / workdir.STATUS_FILE).write_text(json.dumps(job(75.0, **measured).to_dict()))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    plan(str(tmp_path), "1,500", lambda: pytest.fail("a folder needs no cluster"))
    assert capsys.readouterr().out == (
        "Measured: 2 samplers, 1,000 steps/s, the learner waits for data 75% of the time. Predicted, if more processes run "
        "as fast as these:\n\n"
        "samplers  steps/s  learner busy  mean policy lag at most  MB/s received  MB/s sent\n"
        f"       1      500           12%                        2  {first}\n"
        f"     500    4,000          100%                       16  {second}\n\n"
        "The 3 processes shared 2 cores: with a core for each, they may be faster.\n\n"
        "More than 16 samplers at a time need a larger spec.algorithm.impala.batchUnrolls or maxPolicyLag.\n"
    )


def test_a_bound_is_rounded_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / workdir.JOB_FILE).write_text(workdir.SAVED_HEADER)
    impala = job(75.0, {"impala": {"batchUnrolls": 4, "maxPolicyLag": 5}})
    (tmp_path / workdir.STATUS_FILE).write_text(json.dumps(impala.to_dict()))
    plan(str(tmp_path), "1,500", lambda: pytest.fail("a folder needs no cluster"))
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.endswith("-")]
    assert [row[3] for row in rows] == ["1", "3"]


@pytest.mark.parametrize("samplers", ["0", "1,x", "", "1000001"])
def test_numbers_of_samplers_are_checked(samplers: str) -> None:
    problem = refused("plan", "maze", f"--samplers={samplers}", code=2)
    assert (
        problem
        == f"--samplers {samplers}: write numbers from 1 to 1,000,000, separated by commas, such as 1,2,500"
    )
