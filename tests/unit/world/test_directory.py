"""Discovery of members over real sockets. The discovered process is this process itself."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from discoverable import Discoverable
from own_runs import make_context
from rltraining_trainer.transport import Endpoint, Peer
from rltraining_trainer.world import directory
from rltraining_trainer.world.directory import Directory, Registry


class Counted(Endpoint):
    """Counts how often it dials."""

    dials = 0

    def dial(self, url: str) -> Peer:
        self.dials += 1
        return super().dial(url)


class Member(Discoverable):
    """A sampler of a job. This process is also the job's learner 0."""

    def __init__(self, tmp_path: Path) -> None:
        self.registry, self.asked = Registry(), SimpleQueue[str]()
        services = {name: self._noted(name) for name in self.registry.services}
        super().__init__(Counted("pole-sampler-0", "secret", services))
        context = dataclasses.replace(make_context(tmp_path, "pole-sampler-0"), learners=(self.url,))
        self.done = SimpleQueue[bool]()
        self.directory = Directory(context, self.endpoint, lambda: self.done.put(True))

    def _noted(self, name: str) -> Any:
        def answer(sender: str, payload: Any) -> Any:
            self.asked.put(name)
            return self.registry.services[name](sender, payload)

        return answer

    def close(self) -> None:
        self.directory.close()
        super().close()


@pytest.fixture
def member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Member]:
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(directory, "HOLD_SECONDS", 0.02)
    member = Member(tmp_path)
    yield member
    member.close()


def test_who_waits_for_the_end_of_a_long_run_takes_one_connection(member: Member) -> None:
    member.directory.start()
    for _ in range(10):
        assert member.asked.get(timeout=10) == "announce"
    assert member.endpoint.dials == 1
    member.registry.finish()
    assert member.done.get(timeout=10)


def test_who_looks_for_somebody_that_is_not_there_takes_one_connection(member: Member) -> None:
    member.directory.start()
    found = 0
    while found < 4:
        assert member.directory.peer("pole-sampler-1") is None
        found += member.asked.get(timeout=10) == "find"
    assert member.endpoint.dials == 1


def test_when_the_connection_breaks_there_is_a_new_one(member: Member) -> None:
    member.directory.start()
    assert member.asked.get(timeout=10) == "announce"
    member.endpoint.stop()
    member.endpoint.start()
    member.registry.finish()
    assert member.done.get(timeout=10)
    assert member.endpoint.dials >= 2


def test_a_learner_is_found_while_a_sampler_is_searched_and_learner_0_is_down(
    member: Member, tmp_path: Path
) -> None:
    first, second = "http://127.0.0.1:1", member.url
    context = dataclasses.replace(make_context(tmp_path, "pole-sampler-0"), learners=(first, second))
    searching = Directory(context, member.endpoint, lambda: None)
    searching.start()
    deadline = time.monotonic() + 10
    while searching.peer("pole-sampler-1") is None and searching.peer("pole-learner-1") is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    searching.close()
