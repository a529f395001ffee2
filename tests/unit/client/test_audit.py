"""`rltrain audit`: a record that obeys the rules is clean, and each rule finds the record that breaks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import refused, rltrain
from rltraining.jobfile import SAVED_HEADER
from rltraining.trust.audit import examine

UNROLLS = {"unrolls/pushed": 9, "unrolls/used": 6, "unrolls/dropped": 2, "unrolls/queued": 1}
GRADIENTS = {"gradients/pushed": 8, "gradients/applied": 7, "gradients/dropped": 0, "gradients/queued": 1}
REPLAY = {
    **{"replay/inserted": 50, "replay/evicted": 20, "replay/size": 25, "replay/lost": 5},
    **{"replay/sampled": 64, "replay/prioritiesApplied": 32, "replay/prioritiesStale": 8},
    **{"replay/prioritiesLost": 8, "replay/outstanding": 16},
}


def point(steps: int, **changes: Any) -> dict[str, Any]:
    at = {"environmentSteps": steps, "updates": 7, "seconds": steps / 100, "policyLag/p99": 3.0}
    return {**at, **changes}


def record(folder: Path, algorithm: dict[str, Any], points: list[Any], **status: Any) -> Path:
    """Writes the record of a run. Texts among the points are written as they are."""
    spec = {
        "algorithm": algorithm,
        "environment": {"id": "CartPole-v1"},
        "stop": {"environmentSteps": 200},
    }
    progress = {"environmentSteps": 200, "updates": 7}
    job = {
        "apiVersion": "rltraining.dev/v1alpha1",
        "kind": "RLTrainingJob",
        "metadata": {"name": "cartpole"},
        "spec": spec,
        "status": {"phase": "Succeeded", "progress": progress} | status,
    }
    lines = [each if isinstance(each, str) else json.dumps(each) for each in points]
    (folder / "job.yaml").write_text(SAVED_HEADER)
    (folder / "status.json").write_text(json.dumps(job))
    (folder / "progress.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


IMPALA: dict[str, Any] = {"impala": {"maxPolicyLag": 4}}
CASES = {
    "impala": (IMPALA, UNROLLS, {"updates"}),
    "a3c": ({"a3c": {}}, GRADIENTS, set()),
    "a2c": ({"a2c": {}}, GRADIENTS, {"lag", "updates"}),
    "dqnApex": ({"dqnApex": {}}, REPLAY, {"lag", "updates"}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_whose_numbers_agree_is_clean(tmp_path: Path, name: str) -> None:
    algorithm, counters, silent = CASES[name]
    folder = record(tmp_path, algorithm, [point(100, **counters), point(200, **counters)])
    findings = examine(folder)
    assert [found.violations for found in findings] == [()] * 6
    assert {found.rule for found in findings if not found.has_evidence} == silent
    assert rltrain("audit", str(folder)).exit_code == 0


def test_a_line_that_a_kill_has_cut_is_no_violation(tmp_path: Path) -> None:
    _, counters, _ = CASES["impala"]
    folder = record(tmp_path, IMPALA, [point(100, **counters), point(200, **counters)])
    with (folder / "progress.jsonl").open("a") as file:
        file.write('{"environmentSteps": 2')
    assert [found.violations for found in examine(folder)] == [()] * 6


def test_a_copy_of_a_learners_folder_needs_the_job_beside_it(tmp_path: Path) -> None:
    _, counters, _ = CASES["impala"]
    folder = record(tmp_path, IMPALA, [point(100, **counters), point(200, **counters)])
    (folder / "job.yaml").unlink()  # a learner in a cluster writes none
    assert [found.violations for found in examine(folder)] == [()] * 6
    (folder / "status.json").unlink()
    told = refused("audit", folder)
    assert told.endswith(f": kubectl get rlj NAME -o json > {folder / 'status.json'}")
    (folder / "progress.jsonl").unlink()
    assert refused("audit", folder) == f"{folder}: holds no run: name the folder of a run, such as runs/first"


BROKEN = [
    (
        "records",
        *(IMPALA, [point(100), "{broken", point(200)], {}),
        "line 2 is no JSON object",
    ),
    (
        "accounts",
        *(IMPALA, [point(200, **UNROLLS | {"unrolls/dropped": 1})], {}),
        "at step 200: unrolls/pushed is 9, but unrolls/used 6 + unrolls/dropped 1 + unrolls/queued 1 = 8",
    ),
    (
        "accounts",
        *({"dqnApex": {}}, [point(200, **REPLAY | {"replay/lost": 4})], {}),
        "at step 200: replay/inserted is 50, but replay/evicted 20 + replay/size 25 + replay/lost 4 = 49",
    ),
    (
        "counters",
        *(IMPALA, [point(100, episodes=3), point(200, episodes=2)], {}),
        "at step 200: episodes falls from 3 to 2",
    ),
    (
        "counters",
        *(IMPALA, [point(300), point(200)], {}),
        "at step 200: environmentSteps falls from 300 to 200",
    ),
    (
        "lag",
        *(IMPALA, [point(200, **{"policyLag/p99": 5.0})], {}),
        "at step 200: policyLag/p99 is 5, but maxPolicyLag is 4",
    ),
    (
        "lag",
        *({"a3c": {}}, [point(200, **{"policyLag/p99": 17.0})], {}),
        "at step 200: policyLag/p99 is 17, but maxPolicyLag is 16",
    ),
    (
        "updates",
        *({"a3c": {}}, [point(200, **GRADIENTS, updates=6), point(200, **GRADIENTS)], {}),
        "at step 200: 6 updates, but gradients/applied is 7",
    ),
    (
        "end",
        *(IMPALA, [point(200)], {"progress": {"environmentSteps": 201, "updates": 7}}),
        "the curve ends with environmentSteps 200, but the status has 201",
    ),
    (
        "end",
        *(IMPALA, [point(200)], {"progress": {"environmentSteps": 200, "updates": 8}}),
        "the curve ends with updates 7, but the status has 8",
    ),
]


@pytest.mark.parametrize(("rule", "algorithm", "points", "status", "violation"), BROKEN)
def test_each_rule_finds_what_breaks_it(
    tmp_path: Path,
    rule: str,
    algorithm: dict[str, Any],
    points: list[Any],
    status: dict[str, Any],
    violation: str,
) -> None:
    folder = record(tmp_path, algorithm, points, **status)
    found = {finding.rule: finding.violations for finding in examine(folder) if finding.violations}
    assert found.pop(rule)[0] == violation
    assert found == {}
    result = rltrain("audit", str(folder))
    assert result.exit_code == 1
    assert f"bad  {rule}" in result.stdout
    assert violation in result.stdout


@pytest.mark.parametrize("value", [None, "many", [], True])
def test_what_is_no_number_is_not_compared(tmp_path: Path, value: Any) -> None:
    """A learner that has just started does not know the lag."""
    names = ("environmentSteps", "updates", "episodes", "policyLag/p99", *UNROLLS, "gradients/applied")
    points = [point(100, **UNROLLS), dict.fromkeys(names, value), point(200, **UNROLLS)]
    for algorithm in (IMPALA, {"a3c": {}}):
        assert rltrain("audit", str(record(tmp_path, algorithm, points))).exit_code == 0


def test_a_run_that_has_not_ended_is_not_compared_with_its_status(tmp_path: Path) -> None:
    folder = record(tmp_path, IMPALA, [point(100, **UNROLLS)], phase="Running")
    assert rltrain("audit", str(folder)).exit_code == 0


def test_only_the_first_violations_are_printed(tmp_path: Path) -> None:
    folder = record(tmp_path, IMPALA, [point(step, updates=-step) for step in range(1, 30)])
    assert "and 23 more" in rltrain("audit", str(folder)).stdout


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    result = rltrain("audit", str(tmp_path))
    assert result.exit_code == 2
    assert "holds no run: name the folder of a run" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--kill", "sampler"), "--kill sampler: is not ROLE=TIME: name one of learner, sampler, replay"),
        (("--kill", "actor=7s"), "--kill actor=7s: is not ROLE=TIME"),
        (("--freeze", "sampler=0s"), "--freeze 0s: is not a time: use a positive number with s, m or h"),
        (("--for", "ten"), "--for ten: is not a time"),
    ],
)
def test_a_disturbance_that_is_not_understood_is_refused(arguments: tuple[str, ...], problem: str) -> None:
    result = rltrain("chaos", "cartpole-impala", *arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
