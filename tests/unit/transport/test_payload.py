"""Payloads are received unchanged, and other objects are not received at all."""

from __future__ import annotations

import functools
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rltraining_trainer.transport.payload import Unreadable, pack, unpack

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
payloads = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@given(payloads)
def test_plain_values_arrive_as_they_were(value: object) -> None:
    arrived = unpack(*pack(value))

    assert arrived == value
    assert type(arrived) is type(value)


def test_tensors_arrive_uncopied_and_without_their_graph() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    observation = torch.zeros(2, dtype=torch.uint8)

    arrived = unpack(*pack({"state": (observation, weight), "again": observation}))

    assert arrived["state"][0].data_ptr() == arrived["again"].data_ptr() == observation.data_ptr()
    assert arrived["state"][1].data_ptr() == weight.data_ptr()
    assert not arrived["state"][1].requires_grad


@pytest.mark.parametrize("value", [np.zeros(2), b"bytes", {1, 2}, object(), os.system, np.float64(1.0), int])
def test_what_is_no_payload_is_not_sent(value: object) -> None:
    with pytest.raises(TypeError, match="cannot be sent: use tensors"):
        pack({"unroll": [value]})


def test_a_tensor_elsewhere_is_not_sent() -> None:
    with pytest.raises(TypeError, match="on meta cannot be sent: move it to the CPU"):
        pack(torch.empty(2, device="meta"))


class Attack:
    """Pickles as a call of `function`, which leaves a file behind."""

    def __init__(self, function: object, *arguments: object) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> object:
        return self._call


@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
@pytest.mark.parametrize("kind", ["system", "eval", "exec", "partial", "getattr"])
def test_a_pickle_of_a_call_is_refused_and_not_executed(tmp_path: Path, kind: str, protocol: int) -> None:
    trace = tmp_path / "executed"
    statement = f"__import__('pathlib').Path({str(trace)!r}).touch()"
    attacks = {
        "system": Attack(os.system, f"touch {trace}"),
        "eval": Attack(eval, statement),
        "exec": Attack(exec, statement),
        "partial": functools.partial(os.system, f"touch {trace}"),
        "getattr": Attack(getattr, Attack(__import__, "os"), "system"),
    }
    message = pickle.dumps(("token", "push", "stranger", attacks[kind]), protocol=protocol)

    with pytest.raises(Unreadable, match="is refused: messages are tensors and plain values"):
        unpack(message, [])
    assert not trace.exists()


@pytest.mark.parametrize(
    ("module", "name"), [("os", "getpid"), ("no_such", "thing"), ("builtins", "AttributeError")]
)
def test_no_name_at_all_is_looked_up(module: str, name: str) -> None:
    with pytest.raises(Unreadable, match=f"{module}.{name} is refused"):
        unpack(f"c{module}\n{name}\n.".encode(), [])


@given(st.binary(max_size=64))
def test_any_bytes_are_either_a_plain_value_or_unreadable(data: bytes) -> None:
    try:
        unpack(data, [])
    except Unreadable:
        return


def test_a_tensor_that_did_not_come_is_unreadable() -> None:
    data, _ = pack(torch.ones(1))

    with pytest.raises(Unreadable, match="IndexError"):
        unpack(data, [])
