"""A sweep on this machine, before and between its runs: its folder, its checks and its output."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import drawn, refused, rltrain
from rltraining import workdir
from rltraining.compare.result import of_folder
from rltraining.compare.row import rows
from rltraining.errors import UsageError
from rltraining.jobfile import load
from rltraining.sweep import folder as sweep_folder
from rltraining.sweep import stop_rules
from rltraining.sweep.command import keep
from rltraining.sweep.display import Lines, render
from rltraining.sweep.execute import Execution
from rltraining.sweep.plan import Request, plan
from rltraining.sweep.snapshot import Row, SweepSnapshot, point_of, row_of
from snapshots import snapshot

NAMES = ["seed=0", "seed=1", "seed=2"]


@pytest.fixture
def swept(tmp_path: Path, file: Path) -> Path:
    """The folder of a sweep that has not started."""
    folder = tmp_path / "sweep"
    sweep_folder.write(folder, plan(str(file), (), Request(seeds=3)))
    return folder


def test_each_run_is_prepared_as_a_run_of_its_own(swept: Path) -> None:
    assert sweep_folder.run_names(swept) == NAMES
    assert [load(str(swept / name / "job.yaml")).job.spec.seed for name in NAMES] == [0, 1, 2]
    assert all(workdir.holds_run(swept / name) for name in NAMES)
    runs = json.loads((swept / "sweep.json").read_text())["runs"]
    assert runs[1] == {"name": "seed=1", "values": {"spec.seed": 1}}


def test_overwriting_deletes_what_the_sweep_left_and_nothing_else(swept: Path) -> None:
    (swept / "seed=1" / "notes.txt").write_text("mine")
    (swept / "seed=1" / "checkpoints").mkdir()
    (swept / "seed=2" / "status.json").write_text("{}")
    (swept / "comparison.json").write_text("{}")
    (swept / "mine.txt").write_text("mine")
    sweep_folder.clear(swept)
    left = sorted(str(path.relative_to(swept)) for path in swept.rglob("*") if path.is_file())
    assert left == ["mine.txt", "seed=1/notes.txt"]
    assert not (swept / "seed=0").exists()


def test_what_cannot_be_swept_or_gone_on_with(swept: Path, file: Path) -> None:
    one = swept / "seed=0"
    for arguments, problem in (
        (f"{file} --seeds 2 --workdir {swept}", "holds a sweep already: continue it with --resume"),
        (f"{file} --workdir {swept} --overwrite", "holds a sweep: name another folder"),
        (f"{file} --seeds 2 --workdir {one}", "holds a run: name another folder"),
        (f"{swept}", "is the folder of a sweep: to continue this sweep add --resume"),
        (f"{swept} --seeds 2", "is the folder of a run or a sweep: name the manifest to sweep"),
        (f"{one} --seeds 2 --resume", "--resume: a resumed sweep uses its original jobs"),
        (f"{swept} --resume --seeds 2", "--resume: a resumed sweep uses its original jobs"),
        (f"{swept} --resume --seed 2", "--set and --seed: a resumed sweep uses its original jobs"),
        (f"{swept} --resume --seed 2", "leave out spec.seed, or start a new sweep"),
        (
            f"{swept} --resume --set stop.seconds=9 --set sampler.replicas=2",
            "leave out spec.sampler.replicas",
        ),
        (f"{swept} --resume --set stop.seconds", "--set stop.seconds: must be path=value"),
        (f"{file} --resume --workdir {swept}", "FILE: a resumed sweep uses its original jobs"),
        ("--seeds 2", "FILE is missing: name the manifest to sweep"),
        (f"{file} --parallel 2", "--parallel: is for sweeps: add --sweep or --seeds"),
        (f"{file} --seeds 2 --set runPolicy.suspend=true", "so nothing would run"),
        (f"{file} --seeds 2 --resume --overwrite", "--resume and --overwrite exclude each other"),
    ):
        assert problem in refused("run", *arguments.split())
    (swept / "sweep.json").unlink()
    (swept / "seed=1" / "status.json").write_text("{}")
    told = refused("run", file, "--seeds", "2", "--workdir", swept)
    assert "holds the run seed=1 already: name another folder" in told


def test_a_damaged_list_of_runs_leads_nowhere_else(swept: Path) -> None:
    damaged = (
        "{",
        "[]",
        '{"runs": []}',
        *(f'{{"runs": [{{"name": "{name}"}}]}}' for name in ("../x", "..", "")),
    )
    for text in damaged:
        (swept / "sweep.json").write_text(text)
        with pytest.raises(UsageError, match=r"sweep\.json: "):
            sweep_folder.run_names(swept)


def test_the_newest_of_the_runs_may_be_a_sweep(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("runs/cartpole-sweep-20261121-014300")
    sweep_folder.write(folder, plan(str(file), (), Request(seeds=2)))
    assert workdir.newest(None) == folder
    with pytest.raises(UsageError):
        workdir.newest("cartpole")


def test_what_was_over_when_rltrain_was_killed_still_gets_its_picture(swept: Path) -> None:
    status = {"phase": "Succeeded", "completionTime": "2026-11-21T01:43:00Z"}
    over = load(str(swept / "seed=0" / "job.yaml")).job.to_dict() | {"status": status}
    for name in NAMES:
        (swept / name / "status.json").write_text(json.dumps(over))
    for name, seconds in (("seed=0", 0), ("seed=2", -1)):  # seed=2's picture is older than its last resume
        picture = swept / name / "learning_curve.png"
        picture.write_bytes(b"drawn")
        then = (swept / name / "status.json").stat().st_mtime + seconds
        os.utime(picture, (then + 0.1, then + 0.1))
    execution = Execution(swept, Lines(io.StringIO()))
    assert [path.name for path, _ in execution.undrawn] == ["seed=1", "seed=2"]


def ended(run: Path, phase: str, message: str) -> None:
    """Writes the state of a run that is over."""
    status = {"phase": phase, "message": message, "completionTime": "2026-11-21T01:43:00Z"}
    over = load(str(run / "job.yaml")).job.to_dict() | {"status": status}
    (run / "status.json").write_text(json.dumps(over))


def phases(swept: Path) -> list[str]:
    """The phases with which a resumed sweep starts."""
    return [row.phase for row in Execution(swept, Lines(io.StringIO())).snapshot.rows]


def test_other_stop_rules_continue_the_runs_that_were_ended_by_one_of_the_earlier_ones(swept: Path) -> None:
    stop_rules.change(swept, ("stop.environmentSteps=1000", "stop.seconds=60"))
    ended(swept / "seed=0", "Succeeded", "stop.environmentSteps is met: 1,000 steps of 1,000")
    ended(swept / "seed=1", "Succeeded", "stop.seconds is met: 60 s of 60")
    ended(swept / "seed=2", "Failed", "the maze has no exit")
    assert phases(swept) == ["Succeeded", "Succeeded", "Failed"]
    stop_rules.change(swept, ("spec.stop.environmentSteps=2000",))
    for name in NAMES:
        stop = load(str(swept / name / "job.yaml")).job.spec.stop
        assert (stop.environment_steps, stop.seconds) == (2000, 60)
    assert phases(swept) == ["Waiting", "Succeeded", "Failed"]
    stop_rules.change(swept, ("stop={environmentSteps: 2000}",))
    assert phases(swept) == ["Waiting", "Waiting", "Failed"]


def test_a_run_that_ended_by_no_rule_continues_with_any_other_rule(swept: Path) -> None:
    ended(swept / "seed=0", "Succeeded", "the algorithm has returned")
    assert phases(swept)[0] == "Succeeded"
    stop_rules.change(swept, ("stop.environmentSteps=2000",))
    assert phases(swept)[0] == "Waiting"


def test_the_comparison_has_no_goal_that_other_stop_rules_have_removed(swept: Path) -> None:
    stop_rules.change(swept, ("stop.environmentSteps=1000", "stop.meanReturn.atLeast=475"))
    ended(swept / "seed=0", "Succeeded", "stop.environmentSteps is met: 1,000 environment steps of 1,000")
    ended(swept / "seed=1", "Succeeded", "stop.meanReturn is met: the last 100 episodes returned 480")
    assert [result.has_goal for result in of_folder(swept)] == [True] * 3
    stop_rules.change(swept, ("stop.meanReturn=null",))
    assert phases(swept) == ["Succeeded", "Waiting", "Waiting"]
    assert [result.has_goal for result in of_folder(swept)] == [False] * 3


def test_stop_rules_that_cannot_be_used_change_no_manifest(swept: Path, file: Path) -> None:
    def manifests() -> list[str]:
        return [path.read_text() for path in sorted(swept.glob("*/job.yaml"))]

    before = manifests()
    assert refused("run", swept, "--resume", "--set", "stop.environmentSteps=0") == (
        "spec.stop.environmentSteps: must be at least 1, got 0"
    )
    with workdir.locked(swept / "seed=2"):
        told = refused("run", swept, "--resume", "--set", "stop.environmentSteps=9")
    assert told.endswith("seed=2: another rltrain is running in it")
    assert manifests() == before
    sweep_folder.clear(swept)
    sweep_folder.write(swept, plan(str(file), (), Request(("stop.environmentSteps=10,20",))))
    before = manifests()
    for change in ("stop.environmentSteps=9", "stop={seconds: 9}"):
        assert refused("run", swept, "--resume", "--set", change).endswith(
            "the runs of this sweep differ in spec.stop.environmentSteps: leave it out, or start a new sweep"
        )
    assert manifests() == before


def test_a_sweep_with_few_seeds_ends_with_a_warning(swept: Path) -> None:
    for name, steps in zip(NAMES, (100, 200, 300), strict=True):
        progress = {"environmentSteps": steps, "meanReturn": steps, "trainingSeconds": 1}
        status = {"phase": "Succeeded", "completionTime": "2026-11-21T01:43:00Z", "progress": progress}
        over = load(str(swept / name / "job.yaml")).job.to_dict() | {"status": status}
        (swept / name / "status.json").write_text(json.dumps(over))
    result = rltrain("run", swept, "--resume")
    assert result.exit_code == 0, result.output
    assert "IQM OF RETURN" in result.stdout
    assert result.stderr.startswith("fewer than 5 seeds: the intervals are too narrow")


def sweep_of(*rows: Row, elapsed: float = 5.0) -> SweepSnapshot:
    return SweepSnapshot("cartpole: impala on CartPole-v1", rows, elapsed)


def row(seed: int, **rest: object) -> Row:
    return replace(Row(f"seed={seed}", {"seed": str(seed)}), **rest)  # type: ignore[arg-type]


def test_the_table_of_a_sweep_that_runs() -> None:
    rows = (
        row(0, phase="Succeeded", steps=412_160, mean_return=480.0, seconds=12.0),
        row(1, phase="Failed", steps=100, seconds=3.0, why="open [/tmp/x] failed " * 20),
        row(2, phase="Running", steps=2_000, mean_return=20.04, seconds=1.0),
        row(3),
    )
    assert drawn(render(sweep_of(*rows), 10)) == (
        """\
cartpole: impala on CartPole-v1  2 of 4 runs over (1 failed), 1 running  00:05

seed   PHASE         STEPS   RETURN    TIME   WHY
0      Succeeded   412,160    480.0   00:12
1      Failed          100        -   00:03   open [/tmp/x] failed open [/tmp/x] failed open [/t…
2      Running       2,000    20.04   00:01
3      Waiting           -        -       -"""
    )


def test_a_swept_field_that_is_called_seed_has_a_column_of_its_own(file: Path) -> None:
    runs = plan(str(file), (), Request(("environment.kwargs.seed=7,8",))).runs
    assert point_of(runs[1].file.job) == {"kwargs.seed": "8", "seed": "0"}


def test_a_full_disk_in_the_end_undoes_nothing(
    swept: Path,
    file_size_limit: Callable[[int], AbstractContextManager[None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with file_size_limit(10):
        keep(swept, rows(of_folder(swept)))
    assert capsys.readouterr().err.startswith("the comparison could not be written: ")
    assert not list(swept.glob("*comparison*"))


def test_of_many_runs_those_around_the_running_one_are_shown() -> None:
    rows = [row(i, phase="Succeeded" if i < 50 else "Waiting") for i in range(100)]
    shown = drawn(render(sweep_of(*rows), 6)).splitlines()[3:]
    assert [line.split()[0] for line in shown] == ["47", "48", "49", "50", "51", "52", "and"]
    assert shown[-1] == "and 94 more"


def test_lines_tell_of_phases_as_they_change_and_of_progress_now_and_then() -> None:
    out = io.StringIO()
    lines = Lines(out)
    lines.show(sweep_of(row(0), row(1), elapsed=0))
    lines.show(sweep_of(row(0, phase="Running"), row(1), elapsed=1))
    lines.show(sweep_of(row(0, phase="Running", steps=10), row(1), elapsed=2))
    lines.show(sweep_of(row(0, phase="Running", steps=2000, mean_return=9.0), row(1), elapsed=12))
    lines.show(sweep_of(row(0, phase="Failed", steps=3000, why="no such environment"), row(1), elapsed=13))
    assert out.getvalue() == (
        """\
00:01  seed=0  Running
00:12  seed=0  Running    2,000 steps  return 9.000
00:13  seed=0  Failed     3,000 steps  return -  no such environment
"""
    )


def test_a_run_that_failed_or_waits_tells_why_in_a_line() -> None:
    failed = row_of("seed=0", snapshot("Failed", message="the maze has no exit\nTraceback\n"))
    assert (failed.phase, failed.why) == ("Failed", "the maze has no exit")
    assert row_of("seed=0", snapshot("Pending", message="no room for a pod")).why == "no room for a pod"
    assert row_of("seed=0", snapshot("Running", message="all pods are ready")).why == ""
