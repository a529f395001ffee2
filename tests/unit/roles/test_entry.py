"""A pod that is deleted during its container's start does not use its full grace period."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from rltraining_trainer.entry import main


@pytest.fixture(autouse=True)
def _handler_put_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_is_heard_before_the_roles_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)

    def role() -> int:
        signal.raise_signal(signal.SIGTERM)
        return 3

    monkeypatch.setitem(sys.modules, "rltraining_trainer.roles.main", SimpleNamespace(main=role))
    assert (main(), exits) == (3, [128 + signal.SIGTERM])
