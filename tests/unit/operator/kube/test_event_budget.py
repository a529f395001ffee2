"""A job has client-go's Event budget of an object (EventCorrelator), which verbose pods do not exhaust."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from rltraining_operator.cluster import Event, Key
from rltraining_operator.engine import utc_now
from rltraining_operator.kube import events as events_module
from rltraining_operator.kube.events import BURST, REFILL_SECONDS, RESERVED, EventWriter

from tests.unit.operator.kube.fake_api_server import FakeApiServer

DEMO = Key("default", "demo")


def said(number: int) -> Event:
    return Event("Warning", "Said", f"warning {number}", reported=True)


class Written:
    """A running EventWriter and the events that it has written."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server
        self.events = EventWriter(server.api(), utc_now, "here")

    async def all(self) -> dict[str, int]:
        """Returns the messages with their counts."""
        await self.events.drain(5.0)
        found = (it for path, it in self._server.objects.items() if "/events/" in path)
        return {event["message"]: event["count"] for event in found}


async def test_warnings_of_pods_leave_room_for_what_the_operator_has_to_tell(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with FakeApiServer().serving() as server:
        written = Written(server)
        for number in range(100):
            written.events.write(DEMO, "uid", said(number))
        assert list(await written.all()) == [f"warning {n}" for n in range(BURST - RESERVED)]
        for number in range(100):
            written.events.write(DEMO, "uid", Event("Warning", "MemberFailed", f"death {number}"))
        assert len(await written.all()) == BURST
        logged = [line for line in caplog.records if line.name == events_module.__name__]
        assert len(logged) == BURST, "nor do they fill the log"

        written.events.write(Key("default", "other"), "other", said(1000))
        assert len(await written.all()) == BURST + 1, "each job has its own"


async def test_equal_events_count_too_and_time_brings_new_ones() -> None:
    async with FakeApiServer().serving() as server:
        written = Written(server)
        for _ in range(100):
            written.events.write(DEMO, "uid", Event("Normal", "PodsCreated", "created demo-sampler-0"))
        assert await written.all() == {"created demo-sampler-0": BURST}
        for hours in range(1, 4):
            await asyncio.sleep(REFILL_SECONDS)
            for _ in range(100):
                written.events.write(DEMO, "uid", Event("Normal", "PodsCreated", "created demo-sampler-0"))
            assert await written.all() == {"created demo-sampler-0": BURST + hours}


async def test_jobs_of_which_nothing_is_told_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "REMEMBERED", 10)
    async with FakeApiServer().serving() as server:
        events = EventWriter(server.api(), utc_now, "here")
        for number in range(100):
            events.write(Key("default", f"job-{number}"), f"uid-{number}", said(0))
        assert len(events._buckets) == 10


async def test_of_a_long_message_beginning_and_end_are_written() -> None:
    async with FakeApiServer().serving() as server:
        written = Written(server)
        text = "step raised KeyError\n" + "  File <string>\n" * 500 + "KeyError: 'left'"
        written.events.write(DEMO, "uid", Event("Warning", "UserCodeError", text))
        (message,) = await written.all()
        assert message.startswith("step raised KeyError\n")
        assert message.endswith("KeyError: 'left'")
        assert len(json.dumps(message)) < 1024
