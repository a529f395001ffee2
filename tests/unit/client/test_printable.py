"""Text from other sources with escape sequences, on its way to a terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import drawn, rltrain, succeeded
from fake_api import FakeApi
from rltraining.cluster import logs as logs_command
from rltraining.cluster.logs import LogsOptions, logs
from rltraining.display import Plain
from rltraining.printable import one_line, printable, with_colours
from rltraining.snapshot import EventRow, PodRow
from rltraining.sweep.display import Lines
from rltraining.sweep.display import render as render_sweep
from rltraining.sweep.snapshot import Row, SweepSnapshot
from rltraining.view import render
from snapshots import condition, snapshot

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\r\x08\u202egnp\u2066"
SHOWN = "\\x1b]0;pwned\\x07\\x1b[2J\\x9b31m\\r\\x08\\u202egnp\\u2066"


def check_harmless(text: str) -> None:
    bad = {c for c in text if not c.isprintable() and c not in "\n\t"}
    assert not bad, f"{bad} of {text!a}"
    assert "\u202e" not in text


def test_control_characters_become_escapes_and_nothing_else_changes() -> None:
    assert printable(f"a\n\tb {EVIL}") == f"a\n\tb {SHOWN}"
    assert one_line(f"a\nb {EVIL}") == f"a\\nb {SHOWN}"
    assert printable("Grüße 你好 🎉 \ud800") == "Grüße 你好 🎉 \\ud800"
    for code in range(0x3000):
        shown = printable(chr(code))
        if shown == chr(code) and code not in (9, 10):
            assert not 0 <= code < 0x20, code
            assert not 0x7F <= code < 0xA0, code
    assert (
        with_colours("\x1b[1;31mred\x1b[0m \x1b[2J\x1b]0;x\x07")
        == "\x1b[1;31mred\x1b[0m \\x1b[2J\\x1b]0;x\\x07"
    )


def test_live_views_and_lines_show_escapes() -> None:
    seen = snapshot(
        "Pending",
        message=EVIL,
        conditions=(condition("Ready", EVIL, "False"),),
        pods=(PodRow("a-0", f"[bold]{EVIL}", ready=False, restarts=0, why=f"{EVIL}\n00:01 fake"),),
        events=(
            EventRow(1.0, "Warning", f"R{EVIL}", EVIL),
            EventRow(1.0, "Normal", "R", f"{EVIL}\n00:02  Event"),
        ),
        notice=f"{EVIL}\n00:03  Event     Fake: line",
    )
    out = io.StringIO()
    Plain(out).show(seen)
    sweep = SweepSnapshot("sweep", (Row("a=1", {"a": EVIL}, "Failed", why=EVIL),), 1.0, notice=EVIL)
    Lines(out).show(sweep)
    lines = out.getvalue()
    check_harmless(lines)
    assert lines.count(SHOWN) >= 4
    assert "\n00:03  Event     Fake: line" not in lines
    for picture in (render(seen), render_sweep(sweep, 10)):
        check_harmless(drawn(picture, width=400))
    assert drawn(render(seen), width=400).count("\\x1b]0;pwned") >= 4


@pytest.mark.usefixtures("cluster")
def test_what_is_told_of_a_job_in_a_cluster_has_no_escapes(
    api: FakeApi, job: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    last = {"lastTransitionTime": "2026-11-21T10:03:00Z"}
    failed = {"type": "Failed", "status": "True", "reason": "UserCodeError", "message": EVIL, **last}
    api.finish(
        phase="Failed",
        message=EVIL,
        conditions=[failed],
        policyUri=f"s3://{EVIL}",
        warnings=[f"Careless: {EVIL}"],
        startTime="2026-11-21T10:00:00Z",
    )
    api.event("e", job["metadata"]["uid"], lastTimestamp="2026-11-21T10:01:00Z", reason=EVIL, message=EVIL)
    for command in (
        ("get",),
        ("get", "-o", "wide"),
        ("get", "cartpole", "-o", "yaml"),
        ("get", "cartpole", "-o", "json"),
        ("watch", "cartpole", "--plain"),
        ("suspend", "cartpole"),
        ("report", "cartpole", "-o", "page.html"),
    ):
        result = rltrain(*command)
        check_harmless(result.output)
        if command[-1] in ("yaml", "json"):
            read = {"yaml": yaml.safe_load, "json": json.loads}[command[-1]](result.stdout)
            assert read["status"]["message"] == EVIL, "what programs read is not changed"
    page = Path("page.html").read_text()
    check_harmless(page)
    assert SHOWN in page


def test_what_a_manifest_holds_is_not_obeyed(file: Path, manifest: str) -> None:
    quoted = json.dumps(EVIL)
    for text in (
        manifest.replace("RLTrainingJob", quoted),
        manifest.replace("cartpole", quoted),
        manifest.replace("CartPole-v1", quoted),
        manifest.replace("spec:", f"spec:\n  {quoted}: 1"),
        f"{{apiVersion: v1, kind: {quoted}, metadata: {{name: {quoted}}}}}\n---\n{manifest}",
        f"{manifest}\n{EVIL}",
    ):
        file.write_text(text)
        result = rltrain("validate", file)
        check_harmless(result.output)
        assert "pwned" in result.output or "YAML forbids" in result.output
    check_harmless(rltrain("validate", file.parent / EVIL).output)


def test_names_of_measurements_are_not_obeyed_either(tmp_path: Path, manifest: str) -> None:
    from rltraining.jobfile import load

    (tmp_path / "job.yaml").write_text(manifest)
    run = tmp_path / "run"
    run.mkdir()
    load(str(tmp_path / "job.yaml")).save(run / "job.yaml")
    row = {
        "environmentSteps": 1,
        "seconds": 1.0,
        "meanReturn": 1.0,
        "run": EVIL,
        f"loss/{EVIL}": 1.0,
        EVIL: EVIL,
    }
    rows = [{**row, "environmentSteps": n, "seconds": n * 1.0, "time": n} for n in range(1, 4)]
    (run / "progress.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    check_harmless(succeeded("report", run, "--no-video"))
    check_harmless((run / "report.html").read_text())
    assert "pwned" in (run / "report.html").read_text()
    for form in ((), ("--json",), ("--csv",)):
        check_harmless(rltrain("compare", run, *form).output)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_logs_keep_their_colours_on_a_terminal_and_everything_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = f"\x1b[33mWARN\x1b[0m {EVIL}"
    monkeypatch.setattr(logs_command, "_lines", lambda *_: iter([line]))
    for out, expected in ((Terminal(), f"\x1b[33mWARN\x1b[0m {SHOWN}\n"), (io.StringIO(), f"{line}\n")):
        logs(None, LogsOptions("cartpole", "learner", "0"), out)  # type: ignore[arg-type]
        assert out.getvalue() == expected
