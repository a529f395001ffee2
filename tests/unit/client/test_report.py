"""`rltrain report` of runs on this machine: a run's folder becomes a page."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import refused, succeeded
from report_page import Page
from rltraining.jobfile import JobFile
from rltraining.report import configuration
from rltraining.workdir import CHAOS_FILE, JOB_FILE, LOCK_FILE
from rltraining_api.manifest import load_manifest
from rltraining_operator.cluster import Event
from rltraining_operator.local.events import EVENTS_FILE, EventLog

START = datetime(2026, 11, 21, 10, tzinfo=UTC)
END = {"completionTime": "2026-11-21T10:05:00Z"}
HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>"

WriteRun = Callable[..., Path]


def row(i: int, **more: Any) -> dict[str, Any]:
    return {
        "environmentSteps": i * 1000,
        "seconds": i / 5,
        "time": (START + timedelta(seconds=i / 5)).timestamp(),
        "run": "first",
        "meanReturn": float(i),
        "stepsPerSecond": 5000.0,
        "policyLag": 1.5,
        "loss/policy_loss": -0.01 * i,
        "unrolls/pushed": 3 * i,
        "unrolls/used": 2 * i,
        "unrolls/dropped": 0,
        "unrolls/queued": i,
        **more,
    }


def point(i: int, **more: Any) -> dict[str, Any]:
    """Returns a point of the learning curve alone."""
    return {name: row(i)[name] for name in ("environmentSteps", "seconds", "time", "meanReturn")} | more


@pytest.fixture
def run(tmp_path: Path, manifest: str) -> WriteRun:
    """``run(rows, phase=…, …)``: writes a run's folder, with these fields in its status."""

    def write(rows: list[dict[str, Any]], **status: Any) -> Path:
        folder = tmp_path / "first"
        folder.mkdir()
        job = load_manifest(manifest)
        JobFile(job).save(folder / JOB_FILE)
        whole = {"phase": "Succeeded", "startTime": "2026-11-21T10:00:00Z", **status}
        (folder / "status.json").write_text(json.dumps(job.to_dict() | {"status": whole}))
        (folder / "progress.jsonl").write_text("".join(json.dumps(point) + "\n" for point in rows))
        return folder

    return write


def page_of(folder: Path) -> Page:
    assert succeeded("report", folder).startswith(f"{folder / 'report.html'}: ")
    return Page(folder / "report.html")


def condition(kind: str, message: str) -> dict[str, str]:
    turned = {"status": "True", "reason": "Because", "lastTransitionTime": START.isoformat()}
    return {"type": kind, "message": message, **turned}


def test_a_finished_run_is_told_in_one_page_that_needs_nothing_else(run: WriteRun) -> None:
    status = {"message": "stop.meanReturn is met", "restarts": 2, "failures": 1, "disruptions": 1}
    progress = {"environmentSteps": 49_000, "meanReturn": 49.0, "bestReturn": 49.0, "episodes": 321}
    page = page_of(run([row(i) for i in range(50)], **END, **status, progress=progress))
    for words in (
        "cartpole Succeeded",
        "stop.meanReturn is met",
        "Return49.00best 49.00",
        "49,000321 episodes",
        "Restarts21 failure, 1 disruption",
        "started 2026-11-21 10:00 UTC, over after 05:00",
        "147 pushed = 98 used + 0 dropped + 49 queued",
        "There is no policy: it is written when a run succeeds",
        "environment: id: CartPole-v1",
    ):
        assert page.has(words), words
    returns = ["Mean return over steps", "Mean return over time"]
    flow = ["Environment steps a second", "Policy lag, in versions", "Unrolls so far", "Unrolls in the queue"]
    assert page.titles == [*returns, *flow, "policy loss"]
    assert page.has("Over environment steps: from 0 to 49, lowest 0, highest 49, 50 points.")
    assert not page.has("does not add up")
    assert all(link.startswith(("#", "data:")) for link in page.links), page.links
    assert "http" not in page.source.replace("http-equiv", "")
    assert "@import" not in page.source
    assert page.tags["script"] == 0
    assert [name for name, times in page.ids.items() if times > 1] == []
    assert page.referred <= page.ids.keys()
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= page.ids.keys()
    assert page.has("goal 475")


def test_what_a_run_has_named_itself_is_text(run: WriteRun) -> None:
    folder = run(
        [point(i, **{f"loss/{HOSTILE}": 1.0, "loss/$x_{": 2.0}) for i in range(3)],
        phase="Failed",
        **END,
        message=HOSTILE,
        conditions=[condition("Failed", f"{HOSTILE}\nTraceback\n  {HOSTILE}")],
    )
    EventLog(folder / EVENTS_FILE).record(Event("Warning", "Odd", HOSTILE))
    page = page_of(folder)
    assert (page.tags["script"], page.tags["img"]) == (0, 0)
    assert page.text.count("alert('x')") >= 4
    assert page.has(f"Traceback {HOSTILE}")


def test_a_run_that_failed_before_anything_was_measured_says_why(run: WriteRun) -> None:
    trace = 'Traceback (most recent call last):\n  File "maze.py", line 12, in step\nValueError: no exit'
    words = condition("Failed", f"cartpole-sampler-0: the environment raised\n{trace}")
    folder = run([], phase="Failed", **END, conditions=[words])
    (folder / "policy").mkdir()
    (folder / "policy" / "policy.json").write_text("{")
    page = page_of(folder)
    assert page.has(trace)
    assert page.has("cartpole Failed cartpole-sampler-0: the environment raised")
    assert page.has("Nothing was measured")
    assert page.tags["svg"] == 0
    assert page.has(f"{folder}/policy/policy.json is damaged")


def test_figures_that_are_no_numbers_or_do_not_add_up_are_not_hidden(run: WriteRun) -> None:
    rows = [point(0, policyLag="?"), point(1, meanReturn=None), point(2, meanReturn=float("nan"))]
    unrolls = {name: value for name, value in row(3).items() if name.startswith("unrolls/")}
    page = page_of(run([*rows, point(3) | unrolls | {"unrolls/dropped": 5}], **END))
    assert page.has("Over environment steps: from 0 to 3, lowest 0, highest 3, 2 points.")
    assert "Policy lag, in versions" not in page.titles
    assert page.has("9 pushed = 6 used + 5 dropped + 3 queueddoes not add up: 14 are accounted for")


def test_a_resume_at_a_damaged_time_is_left_out(run: WriteRun) -> None:
    damaged = [point(i, run=str(i), time=time) for i, time in enumerate((1e9, 1e300, "noon", 1.1e9))]
    page = page_of(run(damaged, **END))
    assert page.has("resumed at step 3,000 or a little before")
    assert not page.has("resumed at step 1,000 or")


def test_an_algorithm_of_ones_own_is_called_by_its_module(run: WriteRun) -> None:
    folder = run([])
    state = json.loads((folder / "status.json").read_text())
    state["spec"]["algorithm"] = {"entryPoint": {"module": "mine.reinforce"}}
    (folder / "status.json").write_text(json.dumps(state))
    page = page_of(folder)
    assert page.has("cartpole: mine.reinforce on CartPole-v1"), "the page's title"
    assert "<dt>Algorithm</dt><dd>mine.reinforce<" in page.source


def test_what_happened_is_told_in_order(run: WriteRun) -> None:
    rows = [point(i, run="first" if i < 30 else "second") for i in range(50)]
    folder = run(rows, **END, conditions=[condition("Complete", "enough")])
    log = EventLog(folder / EVENTS_FILE)
    for _ in range(3):
        log.record(Event("Warning", "Disrupted", "pod cartpole-sampler-0: killed"))
    log.record(Event("Normal", "Suspended", "what a signal is called inside"))
    with (folder / EVENTS_FILE).open("a") as file:
        file.write('{"time": "torn')
    page = page_of(folder)
    order = ("Complete: True", "LearnerResumed", "Disrupted")
    places = [page.text.index(words) for words in order]
    assert places == sorted(places)
    assert page.has("pod cartpole-sampler-0: killed (3 times)")
    assert page.has("A restarted learner resumed at step 30,000 or a little before")
    assert page.has("a dotted upright line is where a restarted learner resumed")
    assert not page.has("what a signal is called inside")


def test_long_stories_keep_their_end(run: WriteRun) -> None:
    folder = run([], **END)
    log = EventLog(folder / EVENTS_FILE)
    for i in range(205):
        log.record(Event("Normal", "PodsCreated", f"created pod-{i:03}"))
    page = page_of(folder)
    assert page.has("5 older lines left out.")
    assert (page.has("created pod-004"), page.has("created pod-005")) == (False, True)


@pytest.mark.parametrize(
    ("status", "held", "phase"),
    [
        ("Running", True, "Running"),
        ("Running", False, "Interrupted"),
        ("Suspended", False, "Stopped"),
        ("Suspended", True, "Suspended"),
    ],
)
def test_a_run_that_is_not_over_says_whether_somebody_keeps_it(
    run: WriteRun, status: str, held: bool, phase: str
) -> None:
    folder = run([], phase=status, message="as the operator reports it")
    with (folder / LOCK_FILE).open("w") as lock:
        if held:
            fcntl.flock(lock, fcntl.LOCK_EX)
        page = page_of(folder)
    assert page.has(f"cartpole {phase}")
    nobody_keeps_it = phase in ("Interrupted", "Stopped")
    assert page.has("--resume continues from its newest checkpoint") == nobody_keeps_it
    assert page.has("as the operator reports it") == (phase != "Stopped")
    assert page.has("the job was not over then")


def test_an_unreadable_status_or_progress_file_is_left_out(run: WriteRun) -> None:
    curve = [{"environmentSteps": n * 100, "seconds": n, "meanReturn": n * 2} for n in range(4)]
    folder = run([], **END, curve=curve)
    page = page_of(folder)
    returns = ["Mean return over steps", "Mean return over time"]
    assert page.titles == [*returns, "Environment steps a second"]
    assert page.has("Over seconds of training: from 100 to 100, lowest 100, highest 100, 3 points.")
    (folder / "status.json").write_text("{")
    (folder / "progress.jsonl").write_text("".join(json.dumps(point(i)) + "\n" for i in range(5)))
    page = page_of(folder)
    assert page.has("status.json is not there or cannot be read")
    assert page.titles == returns


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "swept").mkdir()
    (tmp_path / "swept" / "sweep.json").write_text("{}")
    for name, told in (
        ("empty", "holds no run: name the folder of one, or a job in a cluster"),
        ("swept", "holds a sweep: name the folder of one of its runs, or use rltrain compare"),
        ("no/such", "is no folder: name the folder of a run, or a job in a cluster"),
    ):
        assert refused("report", tmp_path / name) == f"{tmp_path}/{name}: {told}"


def test_the_page_goes_where_it_is_wanted(run: WriteRun, tmp_path: Path) -> None:
    folder = run([], **END)
    page = tmp_path / "new" / "page.html"
    succeeded("report", folder, "-o", page, "--no-video")
    assert Page(page).has("It was left out: --no-video.")
    assert not (folder / "report.html").exists()
    told = refused("report", folder, "--output", page / "below.html", "--no-video", code=1)
    assert ": cannot be written: " in told


def test_the_configuration_is_the_whole_spec_with_defaults_marked(manifest: str) -> None:
    job = load_manifest(manifest, ["algorithm.impala.discount=0.9", "environment.kwargs={a: 'x: y'}"])
    lines = configuration.lines(job)
    assert yaml.safe_load("\n".join(line.text for line in lines)) == {"spec": job.spec.to_dict()}
    marked = {line.text.strip(): line.is_default for line in lines}
    assert [marked[text] for text in ("discount: 0.9", "id: CartPole-v1", "a: 'x: y'")] == [False] * 3
    assert marked["seed: 0"] is True
    assert marked["batchUnrolls: 1"] is True

    trained = job.model_copy(update={"status": job.status.model_copy(update={"preset": "Classic"})})
    preset = {line.text.strip(): line.is_default for line in configuration.lines(trained)}
    assert preset["queueCapacity: 0"] is True, "the preset's, as it was run"
    assert preset["discount: 0.9"] is False


def test_evaluations_are_drawn_at_the_steps_of_their_policies(run: WriteRun) -> None:
    evaluated = {
        i: {f"evaluation/{name}": i * 2.0 for name in ("return", "min", "max", "length")} for i in (20, 40)
    }
    rows = [
        point(
            i, **evaluated.get(i, {}), **({"evaluation/environmentSteps": i * 900} if i in evaluated else {})
        )
        for i in range(50)
    ]
    last = {"environmentSteps": 36_000, "meanReturn": 80.0, "episodes": 5}
    page = page_of(run(rows, **END, evaluation={"last": last, "best": last | {"meanReturn": 90.0}}))
    assert page.has("Evaluation80.00best 90.00, at step 36,000; mean of 5 episodes")
    assert "Return of evaluations: mean, lowest and highest" in page.titles
    assert page.has("Over environment steps: from 40 to 80, lowest 40, highest 80, 2 points.")


def test_kills_of_rltrain_chaos_are_drawn_with_their_recoveries_and_the_audit(run: WriteRun) -> None:
    folder = run([row(i) for i in range(50)], **END)
    kills = [
        {"seconds": 2.0 * i, "time": START.timestamp() + 2 * i, "action": "kill", "role": role}
        | {"pod": f"cartpole-{role}-0", "recovery_seconds": recovery}
        for i, (role, recovery) in enumerate([("learner", 0.8), ("sampler", 0.3), ("sampler", None)], 1)
    ]
    audit = [
        {
            "rule": "accounts",
            "about": "each item is used once",
            "violations": [HOSTILE],
            "has_evidence": True,
        },
        {"rule": "lag", "about": "nothing is old", "violations": [], "has_evidence": False},
    ]
    (folder / CHAOS_FILE).write_text(json.dumps({"occurrences": kills, "audit": audit}))
    page = page_of(folder)
    assert page.titles[:2] == [
        "Mean return, while processes are killed",
        "Seconds from a kill until the process was ready again",
    ]
    assert page.has("kill learner1 timeready again after 0.8 s (median), 0.8 s (longest)")
    assert page.has("kill sampler2 timesready again after 0.3 s (median), 0.3 s (longest)")
    assert page.has("accountsbadeach item is used once")
    assert HOSTILE in page.text
    assert page.tags["script"] == 0
    (folder / CHAOS_FILE).write_text("{")
    assert "Kills and freezes" not in page_of(folder).text
