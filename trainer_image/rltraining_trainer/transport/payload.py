"""Packs plain values and tensors for RPC, and no classes or functions.

torch RPC sends a Python call as a pickle plus a table of tensors, and unpickling can execute code.
Here neither side ever looks up a name: tensors are persistent ids (positions in the table),
everything else is a plain value, and ``find_class`` always raises. So a pickle of ``os.system`` is
just an unreadable message.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from torch import Tensor

Payload: TypeAlias = "Tensor | str | int | float | bool | list[Any] | tuple[Any, ...] | dict[str, Any] | None"
"""Tensors on the CPU, in plain values. No numpy arrays and no bytes, which are 7 times slower."""

_PLAIN = frozenset({str, int, float, bool, type(None), list, tuple, dict})
_PROTOCOL = 5


class Unreadable(ValueError):
    """A message contains something other than a payload."""


@dataclass(frozen=True)
class Opened:
    """The content of a message with a key. torch's values of other message types have no key."""

    content: Any
    """The payload, or `Unreadable` if the message is invalid."""
    is_call: bool
    """Whether the message had the key of calls instead of the key of answers."""


def pack(value: Payload) -> tuple[bytes, list[Tensor]]:
    """Splits `value` into a pickle and its tensors, which are not copied.

    Raises:
        TypeError: `value` contains something that is not a payload.
    """
    buffer = io.BytesIO()
    packer = _Packer(buffer)
    packer.dump(value)
    return buffer.getvalue(), packer.tensors


def unpack(data: bytes, tensors: list[Tensor]) -> Any:
    """Inverts `pack`.

    Raises:
        Unreadable: The message names a class or function, or is not a pickle.
    """
    try:
        return _Unpacker(data, tensors).load()
    except Unreadable:
        raise
    except Exception as error:  # foreign bytes can make the unpickler raise anything
        raise Unreadable(f"the message cannot be read: {type(error).__name__}: {error}") from error


class _Packer(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=_PROTOCOL)
        self.tensors: list[Tensor] = []

    def persistent_id(self, value: object) -> int | None:
        if type(value) in _PLAIN:
            return None
        if not isinstance(value, Tensor):
            raise TypeError(f"a {type(value).__qualname__} cannot be sent: use tensors and plain values")
        if not value.is_cpu:
            raise TypeError(f"a tensor on {value.device} cannot be sent: move it to the CPU first")
        self.tensors.append(value.detach() if value.requires_grad else value)
        return len(self.tensors) - 1


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: bytes, tensors: list[Tensor]) -> None:
        super().__init__(io.BytesIO(data))
        self._tensors = tensors

    def find_class(self, module: str, name: str) -> NoReturn:
        raise Unreadable(f"{module}.{name} is refused: messages are tensors and plain values")

    def persistent_load(self, place: Any) -> Tensor:
        return self._tensors[place]
