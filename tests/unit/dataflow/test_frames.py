"""Files of frames hold plain values and tensors, and survive a process that dies while it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rltraining_trainer.dataflow.frames import MAGIC, FrameWriter, read_frames
from rltraining_trainer.transport.payload import Unreadable

TENSORS = {
    "scalar": torch.tensor(3),
    "flags": torch.tensor([[True, False]]),
    "none": torch.zeros(0, 4, dtype=torch.int64),
    "half": torch.tensor([1.5, float("nan")], dtype=torch.bfloat16),
    "strided": torch.arange(6, dtype=torch.float64).reshape(2, 3).T,
    "trained": torch.ones(2, requires_grad=True),
}


def written(path: Path, *frames: Any) -> int:
    writer = FrameWriter(path)
    try:
        for frame in frames:
            writer.write(frame)
    finally:
        writer.close()
    assert writer.size == path.stat().st_size
    return writer.size


def test_values_and_tensors_come_back(tmp_path: Path) -> None:
    values = {"name": "a", "numbers": [1, 2.5, None, (True,)]}
    written(tmp_path / "a", TENSORS, values)
    first, second = read_frames(tmp_path / "a")
    assert second == values
    assert first.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert first[name].dtype == tensor.dtype
        assert first[name].shape == tensor.shape
        assert torch.equal(first[name].nan_to_num(), tensor.detach().nan_to_num())


@pytest.mark.parametrize("missing", [1, 20])
def test_an_incomplete_last_frame_is_ignored(tmp_path: Path, missing: int) -> None:
    path = tmp_path / "a"
    size = written(path, {"n": 1}, TENSORS)
    path.write_bytes(path.read_bytes()[: size - missing])
    assert list(read_frames(path)) == [{"n": 1}]


def test_other_files_and_objects_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"something else")
    with pytest.raises(Unreadable, match="a is not a file of frames"):
        list(read_frames(tmp_path / "a"))
    with pytest.raises(TypeError, match="a PosixPath cannot be sent"):
        written(tmp_path / "b", {"path": tmp_path})
    assert (tmp_path / "b").read_bytes() == MAGIC
