"""Writes TensorBoard's event files without TensorBoard, whose import takes a third of a second.

The format of scalars is simple and has been stable for ten years:

* A file is a sequence of TFRecords: length (u64), masked CRC-32C of the length, content, masked
  CRC-32C of the content (tensorflow/core/lib/io/record_writer.cc).
* Each content is an ``Event`` message, the first with a version
  (tensorboard/compat/proto/event.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from rltraining_trainer.metrics.append_file import AppendFile

# Wire types of protobuf.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class EventFile:
    """A new event file in ``directory``. TensorBoard shows all files of a directory as one run."""

    def __init__(self, directory: Path, *, name: str, wall_time: float, first_step: int) -> None:
        """``first_step``: TensorBoard discards points of older files from this step on."""
        version = _event(wall_time, 0, _field(3, _BYTES, b"brain.Event:2"))
        # SessionLog.START.
        start = _event(wall_time, first_step, _field(7, _BYTES, _field(1, _VARINT, 1)))
        path = directory / f"events.out.tfevents.{int(wall_time):010d}.{name}"
        self._file = AppendFile(path, header=_record(version) + _record(start))

    def append(self, step: int, values: Mapping[str, float], wall_time: float) -> None:
        """Appends scalars by tag. Raises OSError if they cannot be written."""
        summary = b"".join(
            _field(1, _BYTES, _field(1, _BYTES, tag.encode()) + _field(2, _FIXED32, value))
            for tag, value in values.items()
        )
        self._file.append(_record(_event(wall_time, step, _field(5, _BYTES, summary))))

    def close(self) -> None:
        self._file.close()


def _event(wall_time: float, step: int, what: bytes) -> bytes:
    return _field(1, _FIXED64, wall_time) + _field(2, _VARINT, step) + what


def _field(number: int, wire_type: int, value: float | bytes) -> bytes:
    key = _varint(number << 3 | wire_type)
    if isinstance(value, bytes):
        return key + _varint(len(value)) + value
    if wire_type == _VARINT:
        return key + _varint(int(value))
    return key + struct.pack("<d" if wire_type == _FIXED64 else "<f", value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + _masked_crc(length) + content + _masked_crc(content)


def _masked_crc(data: bytes) -> bytes:
    crc = _crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc32c(data: bytes) -> int:
    """Computes CRC-32C (Castagnoli, RFC 3720 appendix B.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _crc_table_entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_TABLE = tuple(map(_crc_table_entry, range(256)))
