"""Publishing an existing directory replaces its files and keeps subdirectories, such as `policy/best`."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from rltraining_trainer.checkpoint.storage import Storage, open_storage


def write(storage: Storage, directory: str, **files: str) -> None:
    with storage.publish(directory) as open_new:
        for name, content in files.items():
            with open_new(name) as file:
                file.write(content.encode())


@pytest.mark.parametrize("kind", ["local", "object store"])
def test_directories_in_a_directory_stay(kind: str, tmp_path: Path) -> None:
    root = str(tmp_path) if kind == "local" else f"memory://{uuid.uuid4()}"
    storage, inner = open_storage(root), open_storage(f"{root}/policy")
    write(inner, "best", weights="best")
    write(storage, "policy", weights="first", program="old")
    write(storage, "policy", weights="second")
    write(inner, "best", weights="better")
    assert storage.read("policy", "weights") == b"second"
    assert storage.read("policy/best", "weights") == b"better"
    with pytest.raises(FileNotFoundError):
        storage.read("policy", "program")


@pytest.mark.parametrize("kind", ["local", "object store"])
def test_a_write_that_fails_leaves_nothing(kind: str, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path) if kind == "local" else f"memory://{uuid.uuid4()}")

    def fail() -> None:
        with storage.publish("step-1") as open_new:
            with open_new("state") as file:
                file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert storage.directories() == []
