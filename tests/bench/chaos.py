"""Kills and freezes processes of each algorithm while it trains, audits the 20 runs, and makes their updates again.

Each run is two `rltrain chaos` of an example, with two seeds. A violation of a rule ends the
benchmark with the audit's sentence, and so does a state of a rerun that differs from the recorded one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.table import print_table

EXAMPLES = (
    *("cartpole-impala", "cartpole-a3c", "cartpole-a2c", "cartpole-ppo", "cartpole-two-learners"),
    *("cartpole-dqn-apex", "memory-cartpole-r2d2", "pendulum-ddpg-apex", "pendulum-sac", "pendulum-td3"),
)
SEEDS = (0, 1)
SECONDS = 26
OPTIONS = (
    *("--for", f"{SECONDS}s", "--kill", "sampler=2s", "--kill", "learner=6s", "--freeze", "sampler=15s"),
    *(
        "--set",
        "stop.meanReturn=null",
        "--set",
        "stop.environmentSteps=1e10",
        "--set",
        "checkpoint.everySeconds=2",
    ),
    *("--set", "sampler.replicas=2"),
)
SEVERAL_LEARNERS = ("cartpole-two-learners",)
"""Their updates cannot be recorded."""
RLTRAIN = Path(sys.executable).with_name("rltrain")


def run(_: int) -> None:
    rows, kills = [], 0
    for example in EXAMPLES:
        reports = [_report(example, seed) for seed in SEEDS]
        occurrences = [each for report in reports for each in report["occurrences"]]
        kills += len(_of(occurrences, "kill"))
        rows.append(
            (
                example,
                *(_recoveries(_of(occurrences, "kill", role)) for role in ("sampler", "learner")),
                str(len(_of(occurrences, "freeze"))),
                " ".join(f"{report['updates']:,}" for report in reports if "updates" in report) or "-",
                str(sum(len(found["violations"]) for report in reports for found in report["audit"])),
            )
        )
    kill_columns = (f"{role} kills: median, longest recovery" for role in ("sampler", "learner"))
    print_table(
        ("example", *kill_columns, "sampler freezes", "updates made again, equal", "violations"), rows
    )
    print(f"\n{len(EXAMPLES) * len(SEEDS)} runs, {kills} kills")


def _report(example: str, seed: int) -> dict[str, Any]:
    """Returns chaos.json of a run, and its number of updates that were made again.

    Raises CalledProcessError if the run failed, its audit is not clean, or a state of the rerun differs.
    """
    records = example not in SEVERAL_LEARNERS
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        recording = ("--set", "recording.megabytes=4000") if records else ()
        _rltrain("chaos", example, *OPTIONS, *recording, "--set", f"seed={seed}", "--workdir", run)
        report: dict[str, Any] = json.loads((run / "chaos.json").read_text())
        if records:
            found = re.search(r"made ([\d,]+) updates? from 0 to", _rltrain("rerun", run))
            assert found is not None
            report["updates"] = int(found[1].replace(",", ""))
        return report


def _rltrain(*arguments: str | Path) -> str:
    """Returns what a command prints. Raises CalledProcessError."""
    done = subprocess.run([RLTRAIN, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(done.stdout[-4000:])
        done.check_returncode()
    return done.stdout


def _of(occurrences: list[dict[str, Any]], action: str, role: str = "") -> list[dict[str, Any]]:
    return [each for each in occurrences if each["action"] == action and role in ("", each["role"])]


def _recoveries(kills: list[dict[str, Any]]) -> str:
    seconds = [each["recovery_seconds"] for each in kills if each["recovery_seconds"] is not None]
    return f"{len(kills)}: {median(seconds):.1f} s, {max(seconds):.1f} s" if seconds else str(len(kills))
