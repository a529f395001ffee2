"""The queue: each key once, one worker per key, and back-off that does not delay other keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from rltraining_operator.queue import KeyedQueue


class Worker:
    """Records the keys that a queue works on, with times.

    Calls `does` with the key, and awaits the result if it is a coroutine.
    """

    def __init__(self, does: Callable[[str], Any] = lambda key: None) -> None:
        self._does = does
        self._began = time.monotonic()
        self.times: list[tuple[str, float]] = []
        """Keys, and seconds since the test began."""

    async def work(self, key: str) -> float | None:
        self.times.append((key, round(time.monotonic() - self._began, 6)))
        result = self._does(key)
        seconds: float | None = await result if asyncio.iscoroutine(result) else result
        return seconds

    @asynccontextmanager
    async def queue(self, **options: Any) -> AsyncIterator[KeyedQueue[str]]:
        options = {"workers": 2, "backoff_seconds": 1.0, "backoff_max_seconds": 4.0} | options
        queue = KeyedQueue(self.work, **options)
        running = asyncio.create_task(queue.run())
        yield queue
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_key_is_worked_on_once_however_often_it_was_added() -> None:
    worker = Worker()
    async with worker.queue() as queue:
        for key in ("a", "b", "a", "a", "last"):
            queue.add(key)
        assert queue.depth == 3
        await asyncio.sleep(10)
    assert [key for key, _ in worker.times] == ["a", "b", "last"]


async def test_many_keys_of_one_group_do_not_delay_other_groups() -> None:
    worker = Worker(lambda key: asyncio.sleep(1))
    async with worker.queue(workers=1, group=lambda key: key[0]) as queue:
        for key in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
            queue.add(key)
        await asyncio.sleep(2.5)
        queue.add("d1")
        await asyncio.sleep(10)
    assert [key for key, _ in worker.times] == ["a1", "b1", "c1", "a2", "b2", "d1", "a3", "a4"]


async def test_one_worker_a_key_and_once_more_when_added_meanwhile() -> None:
    worker = Worker(lambda key: asyncio.sleep(5))
    async with worker.queue() as queue:
        queue.add("a")
        await asyncio.sleep(1)
        for _ in range(3):
            queue.add("a")
        queue.add_after("a", 2)
        await asyncio.sleep(20)
    assert worker.times == [("a", 0), ("a", 5)]


async def test_a_key_that_was_added_while_it_was_worked_on_is_worked_on_once_more() -> None:
    worker = Worker(lambda key: asyncio.sleep(5))
    async with worker.queue() as queue:
        queue.add("a")
        await asyncio.sleep(1)
        queue.add("a")
        await asyncio.sleep(30)
    assert worker.times == [("a", 0), ("a", 5)]


@pytest.mark.parametrize(("after", "again"), [(2, 5), (3.9, 5), (7, 8)])
async def test_a_time_that_comes_while_the_key_is_worked_on_is_made_up_for(
    after: float, again: float
) -> None:
    """No other worker takes the key before, and the requested time is kept."""
    worker = Worker(lambda key: asyncio.sleep(5))
    async with worker.queue() as queue:
        queue.add("a")
        await asyncio.sleep(1)
        queue.add_after("a", after)
        await asyncio.sleep(30)
    assert worker.times == [("a", 0), ("a", again)]


async def test_keys_that_raise_or_hang_hold_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    def does(key: str) -> Any:
        if key == "hangs":
            return asyncio.sleep(1000)
        if key == "raises":
            raise RuntimeError("no such thing")
        return None

    worker = Worker(does)
    async with worker.queue() as queue:
        queue.add("hangs")
        queue.add("raises")
        queue.add("good")
        for _ in range(14):
            await asyncio.sleep(1)
            queue.add("raises")  # an event is no reason to retry sooner
    tries = [seconds for key, seconds in worker.times if key == "raises"]
    assert (tries, ("good", 0) in worker.times) == ([0, 1, 3, 7, 11], True)
    assert "raises: no such thing (error 1 in a row; again in 1.0 s)" in caplog.text


async def test_success_forgets_errors() -> None:
    outcomes = iter([True, True, False, True, False])

    def does(key: str) -> float | None:
        if next(outcomes):
            raise RuntimeError("x")
        return 0.5 if len(worker.times) < 5 else None

    worker = Worker(does)
    async with worker.queue() as queue:
        queue.add("a")
        await asyncio.sleep(100)
    assert [seconds for _, seconds in worker.times] == [0, 1, 3, 3.5, 4.5], "the back-off begins at 1 again"


async def test_again_after_and_the_earliest_time_counts() -> None:
    worker = Worker()
    async with worker.queue() as queue:
        for seconds in (60, 2, 30):
            queue.add_after("a", seconds)
        await asyncio.sleep(3)
        queue.add_after("a", 60)
        queue.add("a")
        await asyncio.sleep(100)
    assert worker.times == [("a", 2), ("a", 3)]


async def test_a_flurry_of_one_key_is_worked_on_once_a_spacing() -> None:
    worker = Worker()
    async with worker.queue(spacing_seconds=20) as queue:
        for _ in range(50):
            queue.add("a")
            await asyncio.sleep(1)
        await asyncio.sleep(100)
    assert worker.times == [("a", 0), ("a", 20), ("a", 40), ("a", 60)]


async def test_a_key_waits_for_a_worker_from_when_there_are_some() -> None:
    """A standby queues jobs for days before it leads. That time does not count as waiting for a worker."""
    waited: list[float] = []
    queue = KeyedQueue(lambda key: asyncio.sleep(7), workers=1, waited=waited.append)
    queue.add("a")
    await asyncio.sleep(86400)
    queue.add("b")
    await asyncio.sleep(10)
    running = asyncio.create_task(queue.run())
    await asyncio.sleep(30)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert waited == [0.0, pytest.approx(7.0)]
