"""Runs coroutines as tests, on a clock that skips waiting times."""

from __future__ import annotations

import asyncio
import inspect
import selectors
from unittest import mock

import pytest


class ImpatientSelector(selectors.DefaultSelector):
    """Serves sockets as usual. If none is ready, the clock jumps to the next timer."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0.001)
        if not ready:
            self.now += timeout
        return ready


class ImpatientLoop(asyncio.SelectorEventLoop):
    """Sleeps and timeouts take no real time, but advance the loop's clock by their length."""

    def __init__(self) -> None:
        self._clock = ImpatientSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


@pytest.fixture
def real_time() -> None:
    """A real clock for tests that wait for threads, which make no progress while the clock jumps."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a coroutine test in a new event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    if "real_time" in pyfuncitem.fixturenames:
        asyncio.run(test)
        return True
    loop = ImpatientLoop()
    with mock.patch("time.monotonic", loop.time), asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(test)
    return True
