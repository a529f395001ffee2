"""The recorder keeps the newest updates within its limit, and never ends a run."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rltraining_api.recording import Recording
from rltraining_trainer.dataflow.frames import read_frames
from rltraining_trainer.dataflow.gradients import GradientPush
from rltraining_trainer.dataflow.gradients.accounts import Place
from rltraining_trainer.dataflow.trajectory_queue import Source
from rltraining_trainer.errors import Diverged
from rltraining_trainer.world import recorder
from rltraining_trainer.world.recorder import FOLDER, Recorder, from_plain, to_plain


class Algorithm:
    """Each update adds 1, and an update of several steps adds more."""

    def __init__(self) -> None:
        self.updates, self.parameters = 0, torch.zeros(3)

    def get_state(self) -> dict[str, Any]:
        return {"parameters": self.parameters, "updates": self.updates}

    def update(self, steps: int = 1) -> None:
        self.updates += steps
        self.parameters += steps


class Updates:
    """Updates with a recorder. Their batches have 10 kB."""

    def __init__(self, folder: Path, recording: Recording | None) -> None:
        (folder / "job.json").write_text('{"kind": "RLTrainingJob"}')
        self.folder, self.algorithm, self.facts = folder / FOLDER, Algorithm(), dict[str, bool]()
        self.paths: Any = SimpleNamespace(algorithm=self.algorithm, moments=[], facts=lambda: self.facts)
        self.recorder = Recorder(folder, folder / "job.json", recording)

    def make(self, count: int, steps: int = 1) -> None:
        for _ in range(count):
            self.recorder.before_update(self.paths, [{"reward": torch.ones(2_500)}], 1000)
            self.algorithm.update(steps)
            self.recorder.after_update(self.paths, is_complete=True)

    def frames(self) -> list[list[dict[str, Any]]]:
        """Ends the recording, and returns the frames of each file."""
        self.recorder.close()
        return [list(read_frames(path)) for path in sorted(self.folder.glob(recorder.PATTERN))]

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.iterdir())


def test_the_newest_updates_are_kept_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "FILES", 4)
    updates = Updates(tmp_path, Recording(megabytes=1))
    for _ in range(30):
        updates.make(10)
        assert updates.size <= 1_000_000
    kept = updates.frames()
    assert updates.size > 500_000
    numbers = [frame["update"] for frames in kept for frame in frames if frame["kind"] == "update"]
    assert numbers == list(range(numbers[0], 300))

    # Each file begins with the state before its first update.
    for state, first, after, *_ in kept:
        assert state["kind"] == "state"
        assert state["update"] == first["update"]
        assert torch.equal(state["state"]["parameters"], torch.full((3,), float(first["update"])))
        assert (after["update"], after["updates"]) == (first["update"], first["update"] + 1)
        assert after["digest"] == recorder.digest(
            {"parameters": state["state"]["parameters"] + 1, "updates": first["update"] + 1}
        )


def test_a_drop_of_the_return_ends_the_recording_for_good(tmp_path: Path) -> None:
    recording = Recording(megabytes=1, return_drop=100)
    updates = Updates(tmp_path, recording)
    updates.make(3)
    for mean in (None, 200.0, 500.0, 450.0):
        updates.recorder.check_return(mean)
        assert list(updates.recorder.warnings()) == []
    updates.recorder.check_return(400.0)
    updates.make(2)
    updates.recorder.check_return(500.0)

    # A restarted learner does not continue it.
    restarted = Updates(tmp_path, recording)
    restarted.make(2)
    ended = (
        "the recording has ended: the mean return is 400, and was 500 before. Its newest update is number 2"
    )
    for each in (updates, restarted):
        assert [warning.message for warning in each.recorder.warnings()] == [ended]
    (path,) = updates.folder.glob("*.frames")
    assert [frame["update"] for frame in read_frames(path) if frame["kind"] == "update"] == [0, 1, 2]

    # A later update whose loss is NaN is kept nevertheless.
    restarted.recorder.before_update(restarted.paths, ["data"], 1000)
    restarted.recorder.diverged(restarted.paths, Diverged("NaN"))
    assert [frame["kind"] for frame in restarted.frames()[-1]] == ["state", "update", "error"]

    # The user deletes the recording, and restarts the learner, whose return is still low.
    rmtree(updates.folder)
    again = Updates(tmp_path, recording)
    again.make(2)
    again.recorder.check_return(400.0)
    assert list(again.recorder.warnings()) == []
    assert len(again.frames()) == 1


def test_files_begin_between_rollouts(tmp_path: Path) -> None:
    updates = Updates(tmp_path, Recording(megabytes=1))
    for _ in range(20):
        for is_first in (True, False, False):
            updates.facts["is_first_of_rollout"] = is_first
            updates.make(1)
    updates.make(10)
    starts = [frames[0]["update"] for frames in updates.frames()]
    assert len(starts) > 2
    assert all(start % 3 == 0 for start in starts)


@pytest.mark.parametrize("steps", [1, 5])
def test_without_a_recording_an_update_that_diverges_is_kept(tmp_path: Path, steps: int) -> None:
    updates = Updates(tmp_path, None)
    updates.make(3, steps)
    assert not updates.folder.exists()
    updates.recorder.before_update(updates.paths, ["data"], 1000)
    before = updates.algorithm.updates
    if steps > 1:
        updates.algorithm.update()  # the first of several, before one diverges
    updates.recorder.diverged(updates.paths, Diverged("NaN"))
    ((state, update, error),) = updates.frames()
    assert (state["update"], update["update"]) == (before, before)
    assert state["state"]["parameters"].tolist() == [float(before)] * 3
    assert update["batch"] == ["data"]
    assert error == {"kind": "error", "update": before, "text": "NaN"}


def test_a_state_that_is_not_known_is_not_kept(tmp_path: Path) -> None:
    updates = Updates(tmp_path, None)
    updates.make(3)
    updates.recorder.before_update(updates.paths, ["data"], 1000)
    updates.algorithm.update()
    updates.recorder.diverged(updates.paths, Diverged("NaN"))
    assert not updates.folder.exists()


def test_a_rollout_that_is_too_large_ends_the_recording(tmp_path: Path) -> None:
    updates = Updates(tmp_path, Recording(megabytes=1))
    updates.facts["is_first_of_rollout"] = False
    updates.make(300)
    assert updates.size < 2_100_000
    (warning,) = updates.recorder.warnings()
    assert "the updates from one rollout exceed twice recording.megabytes" in warning.message


def test_a_full_disk_is_a_warning(tmp_path: Path) -> None:
    updates = Updates(tmp_path, Recording())
    updates.folder.write_text("a file instead of a folder")
    updates.make(2)
    (warning,) = updates.recorder.warnings()
    assert warning.reason == "RecordingNotWritten"
    assert "the data of updates is not recorded any more" in warning.message
    updates.recorder.diverged(updates.paths, Diverged("NaN"))


def test_batches_become_plain_values_and_come_back() -> None:
    push = GradientPush(
        Source("a", "b", 3), Place("e"), 2, torch.ones(2), 1.0, 5, 0, torch.zeros(0), {"loss": 0.5}
    )
    (found,) = from_plain(to_plain([push]))
    assert type(found) is GradientPush
    assert (found.source, found.place, found.terms) == (push.source, push.place, push.terms)
    assert from_plain(to_plain({"state": (torch.ones(1),)}))["state"] == (torch.ones(1),)
