"""Signals that stop a run: the first in order, the second immediately."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence

import pytest
from rltraining import session
from rltraining.session import SIGNALS, Interrupt


def exit_codes(numbers: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes with which a run would end immediately after these signals."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    earlier = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}

    async def receive() -> None:
        interrupt = Interrupt(lambda: None)
        for number in numbers:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.02)  # otherwise two equal signals may arrive as one
        assert interrupt.number == numbers[0]

    try:
        asyncio.run(receive())
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
    return codes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_command_and_to_its_process_group_is_one_request(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exit_codes([number, number], monkeypatch) == []
    monkeypatch.setattr(session, "REPEAT_SECONDS", 0.01)
    assert exit_codes([number, number], monkeypatch) == [128 + number]


def test_another_signal_or_ctrl_c_twice_ends_a_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_codes([signal.SIGINT, signal.SIGINT], monkeypatch) == [130]
    assert exit_codes([signal.SIGTERM, signal.SIGINT], monkeypatch) == [130]
