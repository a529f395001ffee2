"""Files of frames: plain values and tensors, appended one after another.

A file holds no classes or functions, and reading it executes no code. If the process that writes it dies, the last
frame may be incomplete. Readers ignore it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from rltraining_trainer.transport.payload import Payload, Unreadable, pack, unpack

MAGIC = b"rltraining frames 1\n"
_SIZES = struct.Struct("<QQQ")  # sizes in bytes: types of the tensors, values, tensors
_DTYPES = {
    str(dtype): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
}


class FrameWriter:
    """Writes a new file. Raises OSError, like its methods."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._file.write(MAGIC)
        self.size = len(MAGIC)
        """Bytes of the file."""

    def write(self, value: Payload) -> None:
        """Appends a frame. Raises TypeError if it holds anything but plain values and tensors on the CPU."""
        values, tensors = pack(value)
        for tensor in tensors:
            if str(tensor.dtype) not in _DTYPES:
                raise TypeError(f"a tensor of type {tensor.dtype} cannot be written")
        types, _ = pack([(str(tensor.dtype), list(tensor.shape)) for tensor in tensors])
        contents = [bytes_of(tensor) for tensor in tensors]
        sizes = len(types), len(values), sum(map(len, contents))
        for part in (_SIZES.pack(*sizes), types, values, *contents):
            self._file.write(part)
        self._file.flush()
        self.size += _SIZES.size + sum(sizes)

    def close(self) -> None:
        self._file.close()


def read_frames(path: Path) -> Iterator[Any]:
    """Yields the frames of a file. Raises Unreadable for a damaged or other file, and OSError."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise Unreadable(f"{path} is not a file of frames")
        left = path.stat().st_size - len(MAGIC)
        while left >= _SIZES.size:
            sizes = _SIZES.unpack(file.read(_SIZES.size))
            left -= _SIZES.size + sum(sizes)
            if left < 0:
                return
            try:
                frame = _read_frame(file, *sizes)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise Unreadable(f"{path} is damaged: {error}") from error
            yield frame


def _read_frame(file: BinaryIO, types: int, values: int, contents: int) -> Any:
    found = unpack(file.read(types), [])
    data, body, start = file.read(values), bytearray(file.read(contents)), 0
    tensors = []
    for name, shape in found:
        dtype = _DTYPES[name]
        count = prod(shape)
        tensor = torch.frombuffer(body, dtype=dtype, count=count, offset=start) if count else torch.empty(0)
        tensors.append(tensor.to(dtype).reshape(shape).clone())
        start += count * dtype.itemsize
    return unpack(data, tensors)


def bytes_of(tensor: Tensor) -> bytes:
    """Returns the values of a tensor, in order."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
