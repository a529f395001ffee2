"""A sampler's way to a learner that is lost and found, over real sockets: both are this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rltraining_api.contract import RENDEZVOUS_PATH
from rltraining_trainer.roles.link import LearnerLink
from rltraining_trainer.transport import DeferredReply, Endpoint, MemberServer


class Learner:
    """Owes the answer to a push until it is told to give it; ``asked`` is what came."""

    def __init__(self) -> None:
        self.asked = SimpleQueue[tuple[str, Any]]()
        self.place = ("x", 0, 0)
        self.owed = DeferredReply()
        self.endpoint = Endpoint("me", "secret", {"pull": self._pull, "push": self._push})
        self.endpoint.start()
        documents = {RENDEZVOUS_PATH: lambda: {"url": self.endpoint.url} if self.endpoint.url else None}
        self.http = MemberServer(0, "secret", ready=lambda: True, documents=documents)
        self.http.start()
        context: Any = SimpleNamespace(token="secret", stopping=threading.Event())
        url = f"http://127.0.0.1:{self.http.port}"
        self.link = LearnerLink(context, url, self.endpoint, "push", torch.zeros(1), alone=False, timeout=5.0)

    def answer(self) -> Any:
        return {"version": 1, "parameters": None, "done": False, "place": self.place, "used": True}

    def _pull(self, sender: str, payload: Any) -> Any:
        self.asked.put(("pull", payload.get("place")))
        return self.answer()

    def _push(self, sender: str, payload: Any) -> Any:
        self.asked.put(("push", payload["number"]))
        return self.owed

    def close(self) -> None:
        self.http.stop()
        self.endpoint.stop()


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Learner]:
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    learner = Learner()
    yield learner
    learner.close()


def test_what_was_on_its_way_is_sent_again_after_telling_the_place_that_it_goes_on_from(
    learner: Learner,
) -> None:
    learner.link.attach()
    learner.link.refresh()
    learner.link.send(number=1)
    asked = [learner.asked.get(timeout=10) for _ in range(3)]
    assert asked == [("pull", None), ("pull", None), ("push", 1)], "who begins is at no place yet"

    learner.owed = DeferredReply()
    learner.endpoint.stop()
    learner.endpoint.start()
    learner.place = ("x", 0, 1)
    learner.owed.resolve(learner.answer())
    learner.link.settle()
    asked = [learner.asked.get(timeout=10) for _ in range(2)]
    assert asked == [("pull", ("x", 0, 0)), ("push", 1)]
    assert learner.link.answer["place"] == ("x", 0, 1)
    assert learner.link.reconnects == 1
    assert learner.link.wait_seconds > 0
