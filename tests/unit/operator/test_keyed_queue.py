"""The queue: each key once, one worker a key, back-off that holds nobody else up."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
from rltraining_operator import queue as queue_module
from rltraining_operator.queue import KeyedQueue


class Log(list[float]):
    """Times, for which one can wait."""

    def __init__(self) -> None:
        self._grew = asyncio.Event()

    def note(self) -> None:
        self.append(asyncio.get_running_loop().time())
        self._grew.set()

    async def reach(self, length: int) -> None:
        while len(self) < length:
            self._grew.clear()
            await self._grew.wait()


Scenario = Callable[[KeyedQueue[str]], Awaitable[None]]


def run(work: Callable[[str], Awaitable[float | None]], scenario: Scenario, workers: int = 4) -> None:
    """Run the scenario beside a working queue."""

    async def both() -> None:
        queue = KeyedQueue(work, workers=workers, backoff_seconds=0.01, backoff_max_seconds=0.04)
        working = asyncio.create_task(queue.run())
        try:
            async with asyncio.timeout(5):
                await scenario(queue)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(both())


def test_a_key_is_worked_on_once_however_often_it_was_added() -> None:
    seen: list[str] = []
    log = Log()

    async def work(key: str) -> None:
        seen.append(key)
        log.note()

    async def scenario(queue: KeyedQueue[str]) -> None:
        for key in ("a", "b", "a", "a"):
            queue.add(key)
        queue.add("last")
        await log.reach(3)

    run(work, scenario)
    assert seen == ["a", "b", "last"]


def test_one_worker_a_key_and_once_more_when_added_meanwhile() -> None:
    running: Counter[str] = Counter()
    log = Log()
    go = asyncio.Event()

    async def work(key: str) -> None:
        running[key] += 1
        assert running[key] == 1
        log.note()
        await go.wait()
        running[key] -= 1

    async def scenario(queue: KeyedQueue[str]) -> None:
        queue.add("a")
        await log.reach(1)
        for _ in range(3):
            queue.add("a")
            await asyncio.sleep(0)
        go.set()
        await log.reach(2)
        await asyncio.sleep(0.01)

    run(work, scenario)
    assert len(log) == 2


def test_keys_that_raise_or_hang_hold_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()
    tries = Log()

    async def work(key: str) -> None:
        if key == "hangs":
            await asyncio.Event().wait()
        if key == "raises":
            tries.note()
            raise RuntimeError("no such thing")
        done.set()

    async def scenario(queue: KeyedQueue[str]) -> None:
        queue.add("hangs")
        queue.add("raises")
        queue.add("good")
        await done.wait()
        while len(tries) < 5:
            queue.add("raises")  # an event is no reason to try sooner
            await asyncio.sleep(0.001)

    run(work, scenario, workers=2)
    waits = [later - sooner for sooner, later in itertools.pairwise(tries)]
    assert all(wait >= least - 0.001 for wait, least in zip(waits, (0.01, 0.02, 0.04, 0.04), strict=True))
    assert "raises: no such thing (error 1 in a row; again in 0.0 s)" in caplog.text


def test_success_forgets_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = iter([RuntimeError("x"), RuntimeError("x"), None, RuntimeError("x"), None])
    times = Log()
    pauses: list[float] = []

    async def work(key: str) -> float | None:
        times.note()
        if (error := next(outcomes)) is not None:
            raise error
        return 0.0

    async def scenario(queue: KeyedQueue[str]) -> None:
        add_after = queue.add_after

        def noted(key: str, seconds: float) -> None:
            pauses.append(seconds)
            add_after(key, seconds)

        monkeypatch.setattr(queue, "add_after", noted)
        queue.add("a")
        await times.reach(5)

    run(work, scenario)
    assert pauses[:4] == [0.01, 0.02, 0.0, 0.01], "the back-off began anew"


def test_again_after_and_the_earliest_time_counts() -> None:
    times = Log()

    async def work(key: str) -> float | None:
        times.note()
        return None

    async def scenario(queue: KeyedQueue[str]) -> None:
        started = asyncio.get_running_loop().time()
        queue.add_after("a", 60)
        queue.add_after("a", 0.02)
        queue.add_after("a", 30)
        await times.reach(1)
        assert times[0] - started >= 0.019
        queue.add_after("a", 60)
        queue.add("a")
        await times.reach(2)

    run(work, scenario)


def test_a_flurry_of_one_key_is_worked_on_once_a_spacing() -> None:
    times: list[float] = []

    async def work(key: str) -> None:
        times.append(asyncio.get_running_loop().time())

    async def scenario() -> None:
        queue: KeyedQueue[str] = KeyedQueue(work, workers=2, spacing_seconds=0.2)
        running = asyncio.create_task(queue.run())
        for _ in range(50):
            queue.add("a")
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.25)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())
    assert 2 <= len(times) <= 5, times
    assert all(later - earlier >= 0.19 for earlier, later in itertools.pairwise(times)), times


def test_a_key_waits_for_a_worker_from_when_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby hears of jobs for days before it leads: that is not how long they have waited."""
    now, waited = [0.0], list[float]()
    monkeypatch.setattr(queue_module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def work(_: str) -> None: ...

    async def scenario() -> None:
        queue: KeyedQueue[str] = KeyedQueue(work, workers=1, waited=waited.append)
        queue.add("a")
        now[0] = 86400.0
        running = asyncio.create_task(queue.run())
        while not waited:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())
    assert waited == [0.0]
