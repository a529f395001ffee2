from __future__ import annotations

import logging
from pathlib import Path

import pytest
from rltraining.log_file import LogFile, logging_to


def test_a_full_disk_is_said_once_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogFile(Path("/dev/full"))
    for number in range(3):
        handler.handle(logging.makeLogRecord({"msg": f"line {number}"}))
    handler.close()
    assert capsys.readouterr().err == (
        "warning: /dev/full cannot be written: No space left on device; the run continues\n"
    )


def test_a_bug_is_still_told_in_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogFile(tmp_path / "rltrain.log")
    handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("no number",)}))
    handler.close()
    assert "TypeError: %d format" in capsys.readouterr().err


def test_the_log_of_the_engine_does_not_change_the_level_of_other_loggers(tmp_path: Path) -> None:
    before = logging.getLogger().level
    with logging_to(tmp_path / "run.log"):
        assert logging.getLogger().level == before
        logging.getLogger("rltraining_operator.engine").info("looking")
    assert "looking" in (tmp_path / "run.log").read_text()
