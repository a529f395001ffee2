"""CheckpointWriter: training never waits, the newest snapshot wins, a failure is told and forgotten."""

from __future__ import annotations

import threading
from pathlib import Path

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from rltraining_trainer.checkpoint import CheckpointStore, CheckpointWriter


class SlowFileSystem(MemoryFileSystem):
    """An object store whose writes wait until they are let through."""

    protocol = "slow"
    store: dict = {}  # noqa: RUF012 - fsspec's own way
    pseudo_dirs: list = [""]  # noqa: RUF012
    entered = threading.Semaphore(0)
    let_through = threading.Semaphore(0)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("slow://", "memory://"))

    def _open(self, path: str, mode: str = "rb", **kwargs):
        if mode == "wb" and path.endswith("state.pt"):
            self.entered.release()
            assert self.let_through.acquire(timeout=10)
        return super()._open(path, mode, **kwargs)


fsspec.register_implementation("slow", SlowFileSystem, clobber=True)


def test_what_is_submitted_is_written(tmp_path: Path) -> None:
    writer = CheckpointWriter(CheckpointStore(str(tmp_path), keep=2))
    assert writer.newest is None
    writer.submit(5, {"value": 5})
    assert writer.flush(10)
    assert writer.newest.step == 5
    assert writer.failure is None
    assert writer.close(10)

    again = CheckpointWriter(CheckpointStore(str(tmp_path), keep=2))
    assert again.newest == writer.newest
    assert again.close(10)


def test_a_newer_snapshot_replaces_the_one_that_waits() -> None:
    store = CheckpointStore("slow://run", keep=10)
    writer = CheckpointWriter(store)
    writer.submit(1, {})
    assert SlowFileSystem.entered.acquire(timeout=10)  # 1 is being written
    assert not writer.flush(0), "still writing"
    writer.submit(2, {})
    writer.submit(3, {})
    SlowFileSystem.let_through.release(2)
    assert writer.flush(10)
    written = fsspec.filesystem("slow").ls("/run", detail=False)
    assert sorted(written) == ["/run/step-000000000001", "/run/step-000000000003"]
    assert writer.newest.step == 3
    assert writer.close(10)


def test_a_full_disk_is_told_until_there_is_room(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = CheckpointWriter(CheckpointStore(str(small_disk), keep=2))
    writer.submit(1, {"w": torch.zeros(10)})
    writer.flush(10)
    writer.submit(2, {"w": torch.zeros(1_000_000)})
    writer.flush(10)
    assert writer.failure == (
        f"the checkpoint at step 2 could not be written to file://{small_disk}: "
        "the disk is full; training goes on"
    )
    assert caplog.messages == [writer.failure]
    assert writer.newest.step == 1
    writer.submit(3, {"w": torch.zeros(10)})
    writer.flush(10)
    assert writer.failure is None
    assert writer.newest.step == 3
    assert writer.close(10)


def test_a_state_that_cannot_be_written_does_not_end_the_thread(tmp_path: Path) -> None:
    writer = CheckpointWriter(CheckpointStore(str(tmp_path), keep=2))
    writer.submit(1, {"lock": threading.Lock()})
    assert writer.flush(10)
    assert "checkpoint at step 1" in writer.failure
    writer.submit(2, {})
    assert writer.flush(10)
    assert writer.newest.step == 2
    assert writer.close(10)
