"""The end of a run with storage that rejects its last writes, and checkpoints of a waiting run."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from own_runs import Begin, make_context
from rltraining_trainer.checkpoint import CheckpointStore, CheckpointWriter, StorageRefused, is_transient
from rltraining_trainer.policy import PolicyError
from rltraining_trainer.roles import record
from rltraining_trainer.transport import Stopped
from rltraining_trainer.world.run import Run


class FullFileSystem(MemoryFileSystem):
    """An object store that has no room while `refuses` is set, and counts the attempts in `tried`."""

    protocol = "full"
    store: dict = {}  # noqa: RUF012 - fsspec's own way
    pseudo_dirs: list = [""]  # noqa: RUF012
    refuses: BaseException | None = None
    tried = threading.Semaphore(0)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("full://", "memory://"))

    def _open(self, path: str, mode: str = "rb", **kwargs):
        if mode == "wb" and FullFileSystem.refuses is not None:
            self.tried.release()
            raise FullFileSystem.refuses
        return super()._open(path, mode, **kwargs)


fsspec.register_implementation("full", FullFileSystem, clobber=True)
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    monkeypatch.setattr(record, "_LONGEST_PAUSE", 0.05)
    FullFileSystem.store.clear()
    FullFileSystem.pseudo_dirs[:] = [""]
    FullFileSystem.tried = threading.Semaphore(0)
    yield Begin(make_context(tmp_path, checkpoint={"uri": "full://run"}))
    FullFileSystem.refuses = None


class Finishing:
    """Runs `run.finish()` in a thread, as the process's main loop does while other threads serve."""

    def __init__(self, run: Run) -> None:
        self.raised: list[BaseException] = []
        self.run = run
        self._thread = threading.Thread(target=self._finish)
        self._thread.start()

    def _finish(self) -> None:
        try:
            self.run.finish()
        except BaseException as error:
            self.raised.append(error)

    def until_refused(self) -> None:
        """Waits until a complete attempt has failed and was reported."""
        for _ in range(5):
            assert FullFileSystem.tried.acquire(timeout=10), "it was not tried again"

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()
        self.run.close()


def trained(begin: Begin) -> Run:
    """Returns a run after one update, with a written checkpoint."""
    run = begin(begin.policy())
    assert run.active()
    run.update(10)
    assert run.active()
    run.save()
    assert run._record is not None
    assert run._record._checkpoints.flush(10)
    run.update(20)
    assert run.active()
    return run


def newest_step() -> int:
    newest = CheckpointStore("full://run/pole/checkpoints", keep=3).newest()
    assert newest is not None
    return newest.step


def test_what_a_full_disk_refuses_is_told_and_written_as_soon_as_there_is_room(begin: Begin) -> None:
    run = trained(begin)
    FullFileSystem.refuses = NO_SPACE
    finishing = Finishing(run)
    finishing.until_refused()
    report = run.report()
    (warning,) = report.warnings
    assert warning.reason == "ResultsNotWritten"
    assert warning.message == (
        "the policy could not be written to full://run/pole/policy: the disk is full; "
        "the run is over, and this is tried again for 600 s"
    )
    (condition,) = report.conditions
    assert (condition.status, condition.reason) == ("False", "CheckpointFailed")
    assert condition.message.startswith("the checkpoint at step 30 could not be written")
    assert condition.message.endswith(": the disk is full")
    assert (report.state, newest_step()) == ("Training", 10)

    FullFileSystem.refuses = None
    finishing.join()
    assert finishing.raised == []
    report = run.report()
    assert (report.state, report.warnings, newest_step()) == ("Finished", (), 30)
    assert [condition.status for condition in report.conditions] == ["True"]
    assert report.policy_uri is not None


def test_who_is_told_to_end_does_not_wait_for_room(begin: Begin) -> None:
    run = trained(begin)
    FullFileSystem.refuses = NO_SPACE
    finishing = Finishing(run)
    finishing.until_refused()
    begin.context.stopping.set()
    finishing.join()
    assert [type(error) for error in finishing.raised] == [Stopped]


def test_a_disk_that_stays_full_is_what_the_run_fails_of(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = CheckpointWriter.flush
    monkeypatch.setattr(CheckpointWriter, "flush", lambda writer, timeout: flush(writer, 60.0))
    monkeypatch.setattr(record, "LAST_WRITES_SECONDS", 0.0)
    run = trained(begin)
    FullFileSystem.refuses = NO_SPACE
    with pytest.raises(StorageRefused) as error:
        run.finish()
    run.close()
    assert str(error.value) == (
        "the output of the run could not be written for 0 s: "
        "the policy could not be written to full://run/pole/policy: the disk is full"
    )


def test_a_bug_is_not_tried_again(begin: Begin) -> None:
    run = trained(begin)
    FullFileSystem.refuses = TypeError("a bug")
    with pytest.raises(PolicyError, match="a bug"):
        run.finish()
    run.close()


class DriverError(Exception):
    """An exception class of a storage driver."""


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (NO_SPACE, True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EIO, "Input/output error"), True),
        (OSError(errno.EROFS, "Read-only file system"), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), True),
        (TimeoutError(), True),
        (DriverError("no route"), True),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory"), False),
        (OSError(errno.EINVAL, "Invalid argument"), False),
        (TypeError("a bug"), False),
        (None, False),
    ],
    ids=repr,
)
def test_what_may_pass(error: BaseException | None, passes: bool) -> None:
    assert is_transient(error) is passes


def test_a_run_that_waits_writes_no_checkpoint_twice(tmp_path: Path) -> None:
    begin = Begin(make_context(tmp_path, checkpoint={"everySeconds": 3600}))
    run = begin(begin.policy())
    kept = run._record
    assert kept is not None
    later = float("inf")
    assert kept.wants_checkpoint(later), "there is none yet"
    kept.save()
    assert not kept.wants_checkpoint(later)
    assert run.active()
    run.update(10)
    assert run.active()
    assert kept.wants_checkpoint(later)
    kept.save()
    assert not kept.wants_checkpoint(later)
    kept.stop_reason = "over"
    assert kept.wants_checkpoint(later), "the last one says that the run is over"
    run.close()

    again = begin(begin.policy())
    assert again._record is not None
    assert not again._record.wants_checkpoint(later), "it begins at the newest"
    again.close()


def test_a_checkpoint_that_failed_is_due_again_though_nothing_has_changed(begin: Begin) -> None:
    run = trained(begin)
    kept = run._record
    assert kept is not None
    FullFileSystem.refuses = NO_SPACE
    kept.save()
    assert kept._checkpoints.flush(10)
    assert kept.wants_checkpoint(float("inf"))
    run.close()
