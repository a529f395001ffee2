"""CheckpointWriter: training never blocks, the newest snapshot wins, and a success clears a reported failure."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from rltraining_api.status import CheckpointStatus
from rltraining_trainer.checkpoint import CheckpointStore, CheckpointWriter


class SlowStore(CheckpointStore):
    """A store that blocks each write until the test releases it."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri, keep=10)
        self.entered, self.let_through = threading.Semaphore(0), threading.Semaphore(0)

    def save(self, step: int, state: dict[str, Any]) -> CheckpointStatus:
        self.entered.release()
        assert self.let_through.acquire(timeout=60)
        return super().save(step, state)


def test_what_is_submitted_is_written(tmp_path: Path) -> None:
    writer = CheckpointWriter(CheckpointStore(str(tmp_path), keep=2))
    assert writer.newest is None
    writer.submit(5, {"value": 5})
    assert writer.flush(60)
    assert writer.newest.step == 5
    assert writer.failure is None
    assert writer.close(60)

    again = CheckpointWriter(CheckpointStore(str(tmp_path), keep=2))
    assert again.newest == writer.newest
    assert again.close(60)


def test_a_newer_snapshot_replaces_the_one_that_waits(tmp_path: Path) -> None:
    store = SlowStore(str(tmp_path))
    writer = CheckpointWriter(store)
    writer.submit(1, {})
    assert store.entered.acquire(timeout=60)  # 1 is being written
    assert not writer.flush(0), "still writing"
    writer.submit(2, {})
    writer.submit(3, {})
    store.let_through.release(2)
    assert writer.flush(60)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000000001", "step-000000000003"]
    assert writer.newest.step == 3
    assert writer.close(60)


def test_a_full_disk_is_told_until_there_is_room(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = CheckpointWriter(CheckpointStore(str(small_disk), keep=2))
    writer.submit(1, {"w": torch.zeros(10)})
    writer.flush(60)
    writer.submit(2, {"w": torch.zeros(1_000_000)})
    writer.flush(60)
    assert writer.failure == (
        f"the checkpoint at step 2 could not be written to file://{small_disk}: "
        "the disk is full; training continues"
    )
    assert caplog.messages == [writer.failure]
    assert writer.newest.step == 1
    writer.submit(3, {"w": torch.zeros(10)})
    writer.flush(60)
    assert writer.failure is None
    assert writer.newest.step == 3
    assert writer.close(60)


def test_a_state_that_cannot_be_written_does_not_end_the_thread(tmp_path: Path) -> None:
    writer = CheckpointWriter(CheckpointStore(str(tmp_path), keep=2))
    writer.submit(1, {"lock": threading.Lock()})
    assert writer.flush(60)
    assert "checkpoint at step 1" in writer.failure
    writer.submit(2, {})
    assert writer.flush(60)
    assert writer.newest.step == 2
    assert writer.close(60)
