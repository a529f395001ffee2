"""`rltrain chaos`: processes die and freeze while a job trains, and its records stay exact."""

from __future__ import annotations

import json
from pathlib import Path

from rltrain_command import rltrain

CHANGES = ("stop.meanReturn=null", "stop.environmentSteps=1e10", "checkpoint.everySeconds=1")


def test_a_job_learns_while_its_processes_die(tmp_path: Path) -> None:
    changes = [word for change in CHANGES for word in ("--set", change)]
    disturbances = ("--kill", "sampler=1s", "--kill", "learner=2s", "--freeze", "sampler=4s")
    ended = rltrain(
        tmp_path, "chaos", "cartpole-impala", "--for", "3s", *disturbances, *changes, "--workdir", "run"
    )
    assert ended.code == 0, ended
    report = json.loads((tmp_path / "run" / "chaos.json").read_text())

    kills = [each for each in report["occurrences"] if each["action"] == "kill"]
    assert {each["role"] for each in kills} >= {"sampler"}
    assert any(each["recovery_seconds"] is not None for each in kills)
    status = json.loads((tmp_path / "run" / "status.json").read_text())["status"]
    assert status["phase"] == "Succeeded"
    assert status["restarts"] >= len([each for each in kills if each["recovery_seconds"] is not None])
    assert status["failures"] == 0

    findings = {each["rule"]: each for each in report["audit"]}
    assert [each for each in findings.values() if each["violations"]] == []
    assert findings["accounts"]["has_evidence"]
    assert findings["end"]["has_evidence"]

    page = (tmp_path / "run" / "report.html").read_text()
    assert "Mean return, while processes are killed" in page
    assert "kill sampler" in page

    again = rltrain(tmp_path, "audit", "run")
    assert (again.code, again.err) == (0, "")
    assert again.out in ended.out
