"""CheckpointStore on a local file system and on an object store: each checkpoint is complete or absent."""

from __future__ import annotations

import os
import random
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from rltraining_trainer.checkpoint import (
    CheckpointError,
    CheckpointStore,
    load,
    restore_rng,
    rng_state,
    snapshot,
)
from rltraining_trainer.errors import BadConfiguration

STATE = {
    "network": {"w": torch.arange(6.0).reshape(2, 3)},
    "counters": {"environmentSteps": 7},
    "big": 1 << 127,
}


@pytest.fixture(params=["path", "file", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "memory":
        root = f"/{uuid.uuid4().hex}/checkpoints"
        yield f"memory:/{root}"
        fs = fsspec.filesystem("memory")
        if fs.exists(root):
            fs.rm(root, recursive=True)
    else:
        yield ("file://" if request.param == "file" else "") + str(tmp_path / "output" / "checkpoints")


def files(uri: str) -> list[str]:
    """Returns every file and directory under ``uri``, relative to it."""
    fs, root = fsspec.core.url_to_fs(uri)
    return sorted(path[len(root) + 1 :] for path in fs.find(root, withdirs=True) if path != root)


def damage(uri: str, file: str, change: Callable[[bytes], bytes | None]) -> None:
    fs, root = fsspec.core.url_to_fs(uri)
    path = f"{root}/{file}"
    changed = change(fs.cat_file(path))
    fs.rm_file(path)
    if changed is not None:
        with fs.open(path, "wb") as out:
            out.write(changed)


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


def name(step: int) -> str:
    return f"step-{step:012d}"


def test_what_is_saved_is_loaded(uri: str) -> None:
    store = CheckpointStore(uri, keep=2)
    assert store.newest() is None
    assert store.load_newest() is None

    status = store.save(7, STATE)
    assert status.step == 7
    assert status.uri.endswith(f"checkpoints/{name(7)}")
    assert files(uri) == [name(7), f"{name(7)}/complete.json", f"{name(7)}/state.pt"]

    another = CheckpointStore(uri, keep=2)
    assert another.newest() == status
    for loaded in (another.load_newest(), load(uri), load(status.uri), load(status.uri + "/")):
        assert loaded is not None
        assert (loaded.step, loaded.uri.rstrip("/"), loaded.skipped) == (7, status.uri, ())
        assert torch.equal(loaded.state["network"]["w"], STATE["network"]["w"])
        assert loaded.state["counters"] == STATE["counters"]
        assert loaded.state["big"] == 1 << 127


def test_random_streams_continue_where_they_were_saved(tmp_path: Path) -> None:
    def draw() -> list[float]:
        return [random.random(), random.gauss(), float(np.random.random()), float(torch.rand(1))]

    random.gauss()  # leaves a second value cached, which is state too
    CheckpointStore(str(tmp_path), keep=1).save(1, snapshot({"rng": rng_state()}))
    first = draw()
    draw()
    restore_rng(load(str(tmp_path)).state["rng"])
    assert draw() == first


def test_the_number_of_checkpoints_that_are_kept_may_change(uri: str) -> None:
    store = CheckpointStore(uri, keep=2)
    counts = []
    for step, keep in enumerate((2, 2, 2, 4, 4, 4, 1)):
        store.keep = keep
        store.save(step, STATE)
        counts.append(sum("/" not in name for name in files(uri)))
    assert counts == [1, 2, 2, 3, 4, 4, 1]


def test_the_newest_ones_are_kept(uri: str) -> None:
    store = CheckpointStore(uri, keep=2)
    for step in (
        5,
        100,
        20_000_000_000_000,
        30_000_000_000_000,
    ):  # the last two have more digits than the padding allows
        store.save(step, STATE)
    assert [f for f in files(uri) if "/" not in f] == ["step-20000000000000", "step-30000000000000"]
    assert store.newest().step == 30_000_000_000_000


@pytest.mark.parametrize(
    ("file", "change", "reason"),
    [
        ("state.pt", flip, "the content of state.pt differs from what was written"),
        ("state.pt", lambda content: content[:-100], r"state.pt has \d+ bytes, not \d+"),
        ("state.pt", lambda content: b"", r"state.pt has 0 bytes, not \d+"),
        ("state.pt", lambda content: None, "it was not written to its end"),
        ("complete.json", lambda content: None, "it was not written to its end"),
        ("complete.json", lambda content: content[:20], "its complete.json is damaged"),
        (
            "complete.json",
            lambda content: content.replace(b'"format": 1', b'"format": 2'),
            "or of another version",
        ),
    ],
)
def test_a_damaged_newest_checkpoint_is_passed_over(
    uri: str, file: str, change: Callable[[bytes], bytes | None], reason: str
) -> None:
    store = CheckpointStore(uri, keep=2)
    store.save(1, {"value": 1})
    newest = store.save(2, {"value": 2})
    damage(uri, f"{name(2)}/{file}", change)

    store = CheckpointStore(uri, keep=2)
    loaded = store.load_newest()
    assert (loaded.step, loaded.state) == (1, {"value": 1})
    (sentence,) = loaded.skipped
    assert sentence.startswith(f"checkpoint {newest.uri} was skipped: ")
    assert re.search(reason, sentence)
    assert store.newest().step == 1

    store.save(2, {"value": 3})  # training has reached the same step again
    assert load(uri).state == {"value": 3}
    assert load(uri).skipped == ()
    assert [f for f in files(uri) if "/" not in f] == [name(1), f"{name(2)}-2"], "the damaged one is gone"


def test_when_all_are_damaged_the_store_says_so(uri: str) -> None:
    CheckpointStore(uri, keep=1).save(1, STATE)
    damage(uri, f"{name(1)}/state.pt", flip)
    store = CheckpointStore(uri, keep=1)
    assert store.load_newest() is None
    assert "was skipped" in store.skipped[0]
    with pytest.raises(BadConfiguration, match=r"no checkpoint to resume from at .* was skipped"):
        load(uri)
    with pytest.raises(BadConfiguration, match=f"{name(1)} is damaged"):
        load(f"{uri}/{name(1)}")


class MakesAFile:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_is_not_executed_but_passed_over_although_its_hash_is_right(
    uri: str, tmp_path: Path
) -> None:
    store = CheckpointStore(uri, keep=2)
    store.save(1, STATE)
    store.save(2, {"code": MakesAFile(tmp_path / "pwned")})
    loaded = store.load_newest()
    assert loaded.step == 1
    assert not (tmp_path / "pwned").exists()
    with pytest.raises(BadConfiguration, match="is damaged"):
        load(f"{uri}/{name(2)}")
    assert not (tmp_path / "pwned").exists()
    assert "state.pt cannot be read by torch" in loaded.skipped[0]


def test_leftovers_go_with_the_next_success_and_foreign_files_stay(tmp_path: Path) -> None:
    for leftover in (f".unfinished-{name(3)}", f".removed-{name(1)}", name(4)):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "state.pt").write_bytes(b"half")
    for foreign in ("notes", ".git"):
        (tmp_path / foreign).mkdir()
    store = CheckpointStore(str(tmp_path), keep=1)
    assert store.newest() is None
    store.save(3, STATE)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".git", "notes", name(3)]


def test_nothing_to_resume_from(uri: str) -> None:
    with pytest.raises(BadConfiguration, match="there is no checkpoint to resume from at"):
        load(uri)


@pytest.mark.parametrize("uri", ["nowhere://bucket/x", "adl://store/x"])
def test_a_uri_without_a_driver_is_a_configuration_error(uri: str) -> None:
    with pytest.raises(BadConfiguration, match=f"checkpoint uri '{uri}' cannot be used"):
        CheckpointStore(uri, keep=1)


def test_the_extra_of_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(
        BadConfiguration, match=r"needs the package s3fs, .*: pip install .* 'rltraining\[s3\]' "
    ):
        CheckpointStore("s3://bucket/x", keep=1)


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = CheckpointStore(str(tmp_path / "file"), keep=1)
    with pytest.raises(CheckpointError, match=r"could not be written to file://.*: not a directory"):
        store.save(1, STATE)
    with pytest.raises(CheckpointError, match="could not be read"):
        store.load_newest()


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    store = CheckpointStore(str(small_disk), keep=3)
    store.save(1, {"w": torch.zeros(100_000)})
    free = _free(small_disk)
    with pytest.raises(CheckpointError, match=r"step 2 could not be written to file://.*: the disk is full"):
        store.save(2, {"w": torch.zeros(200_000)})
    assert [path.name for path in small_disk.iterdir()] == [name(1)]
    assert _free(small_disk) == free, "what was half written is given back"
    assert store.newest().step == 1
    assert store.save(3, {"w": torch.zeros(50_000)}).step == 3


def test_a_file_that_cannot_grow(
    file_size_limit: Callable[[int], AbstractContextManager[None]], tmp_path: Path
) -> None:
    store = CheckpointStore(str(tmp_path), keep=3)
    store.save(1, STATE)
    with file_size_limit(10_000), pytest.raises(CheckpointError, match="the disk is full"):
        store.save(2, {"w": torch.zeros(10_000)})
    assert [path.name for path in tmp_path.iterdir()] == [name(1)]


def _free(path: Path) -> int:
    return os.statvfs(path).f_bfree
