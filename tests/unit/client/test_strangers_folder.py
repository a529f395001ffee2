"""A run's folder from a stranger: its links, pipes, devices and bombs neither reach the user's files nor hang a command."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import refused, rltrain, succeeded
from rltraining.errors import UsageError
from rltraining.jobfile import load
from rltraining.whole_file import check_stays_in

PRECIOUS = "years of work"


@pytest.fixture
def folder(policy: Path, file: Path, tmp_path: Path) -> Path:
    """A run with a policy in `evil/`. A stranger wrote all of its files."""
    folder = tmp_path / "evil"
    (folder / "policy").mkdir(parents=True)
    for name in ("policy.json", "weights.pt"):
        (folder / "policy" / name).write_bytes((policy / name).read_bytes())
    load(str(file)).save(folder / "job.yaml")
    (tmp_path / "precious").write_text(PRECIOUS)
    return folder


def describe(folder: Path, **changes: Any) -> None:
    """Changes fields of policy.json."""
    path = folder / "policy" / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("link", "command"),
    [
        ("report.html", ("report", "--no-video")),
        (".new-report.html", ("report", "--no-video")),
        ("policy/policy.pt", ("export", "--format", "torchscript")),
        ("policy/.new-policy.pt", ("export", "--format", "torchscript")),
    ],
)
def test_a_link_does_not_make_a_command_overwrite_another_file(
    folder: Path, tmp_path: Path, link: str, command: tuple[str, ...]
) -> None:
    (folder / link).symlink_to(tmp_path / "precious")
    result = rltrain(command[0], folder, *command[1:])
    assert (tmp_path / "precious").read_text() == PRECIOUS
    if ".new-" not in link:
        assert result.exit_code == 2
        assert f"{folder / link}: is a link out of {folder}" in result.stderr
        succeeded(command[0], folder, *command[1:], "--output", tmp_path / "named")


def test_the_output_of_a_command_stays_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").touch()
    (folder / "near").symlink_to("file")
    (folder / "far").symlink_to("../nothing")
    (folder / "loop").symlink_to("loop")
    (folder / "linked").symlink_to("..")
    (tmp_path / "run").symlink_to("folder")  # the user's own link to a run
    os.mkfifo(folder / "pipe")
    for name in ("file", "near", "new", "inner/new"):
        check_stays_in(folder, folder / name)
        check_stays_in(tmp_path / "run", tmp_path / "run" / name)
    for name in ("far", "linked/new", "../new", "pipe", "inner"):
        with pytest.raises(UsageError, match="name another file with --output"):
            check_stays_in(folder, folder / name)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "endless", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"]
)
@pytest.mark.parametrize(
    ("name", "command", "error"),
    [
        ("policy/policy.json", ("evaluate",), "cannot be read: is no regular file"),
        ("policy/weights.pt", ("evaluate",), "cannot be read: is no regular file"),
        ("progress.jsonl", ("report", "--no-video"), "progress.jsonl: cannot be read: is no regular file"),
        ("progress.jsonl", ("compare",), "progress.jsonl: cannot be read: is no regular file"),
        ("job.yaml", ("compare",), "holds neither a run nor a sweep"),
        ("status.json", ("compare",), ""),
        ("events.jsonl", ("report", "--no-video"), ""),
        (".lock", ("report", "--no-video"), ""),
    ],
)
def test_a_file_without_an_end_is_not_read(
    folder: Path, name: str, command: tuple[str, ...], error: str, endless: Callable[[Path], None]
) -> None:
    (folder / name).unlink(missing_ok=True)
    endless(folder / name)
    result = rltrain(command[0], folder, *command[1:])
    assert (result.exit_code != 0) == bool(error), result.output
    assert error in result.stderr


def test_a_line_without_an_end_takes_no_memory(folder: Path) -> None:
    """A sparse file: an archive of it has a few kilobytes."""
    with (folder / "progress.jsonl").open("wb") as file:
        file.truncate(1 << 42)
    succeeded("compare", folder)


@pytest.mark.parametrize("trust", [[], ["--trust-code"]])
def test_a_compressed_bomb_among_the_weights_is_not_unpacked(folder: Path, trust: list[str]) -> None:
    path = folder / "policy" / "weights.pt"
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    message = refused("evaluate", folder, *trust)
    assert message.endswith("weights.pt is damaged: its tensors are compressed")


def test_weights_larger_than_their_file_are_refused(folder: Path) -> None:
    path = folder / "policy" / "weights.pt"
    weights = torch.load(path)
    name = next(iter(weights))
    torch.save(weights | {name: torch.zeros(1).expand(1_000_000, 1_000_000)}, path)
    assert refused("evaluate", folder).endswith("holds tensors that are larger than the file")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"network": {"mlp": {"hiddenSizes": [65536, 65536]}}}, "has many more parameters"),
        (
            {"network": {"mlp": {"hiddenSizes": [64]}, "lstm": {"hiddenSize": 65536}}},
            "has many more parameters",
        ),
        *[
            ({"observationSpace": space}, "it has more than 4,096 parts or 67,108,864 values")
            for space in (
                {"type": "Box", "shape": [100_000, 100_000], "dtype": "float32", "low": 0, "high": 1},
                {"type": "Discrete", "n": 10**10},
                {"type": "MultiBinary", "shape": [10**10]},
                {"type": "MultiDiscrete", "shape": [1], "dtype": "int64", "nvec": [10**10], "start": [0]},
                {"type": "Tuple", "spaces": [{"type": "Discrete", "n": 2}] * 5000},
            )
        ],
        (
            {"observationSpace": {"type": "Box", "shape": [4], "dtype": "S999999999", "low": 0, "high": 1}},
            "is no type of numbers",
        ),
    ],
)
def test_a_policy_cannot_describe_more_than_its_weights_hold(
    folder: Path, changes: dict[str, Any], error: str
) -> None:
    describe(folder, **changes)
    assert error in refused("evaluate", folder)
