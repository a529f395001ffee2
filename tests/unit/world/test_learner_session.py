"""A sampler's session with a learner that restarts, over real sockets. Both are this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from discoverable import Discoverable
from rltraining_trainer.transport import DeferredReply, Endpoint, RemoteError
from rltraining_trainer.world.session import LearnerSession, MemberSession


class Learner(Discoverable):
    """Answers a push when ``owed`` is resolved. ``asked`` are the received calls."""

    def __init__(self) -> None:
        self.asked = SimpleQueue[tuple[str, Any]]()
        self.place = ("x", 0, 0)
        self.owed = DeferredReply()
        super().__init__(Endpoint("me", "secret", {"data/pull": self._pull, "data/push": self._push}))
        context: Any = SimpleNamespace(token="secret", tls_port=None, stopping=threading.Event())
        self.session = LearnerSession(
            context, self.url, self.endpoint, "data", torch.zeros(1), alone=False, timeout=5.0
        )

    def answer(self) -> Any:
        return {"version": 1, "parameters": torch.zeros(1), "done": False, "place": self.place, "used": True}

    def _pull(self, sender: str, payload: Any) -> Any:
        self.asked.put(("pull", payload.get("place")))
        return self.answer()

    def _push(self, sender: str, payload: Any) -> Any:
        self.asked.put(("push", payload["number"]))
        return self.owed


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Learner]:
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    learner = Learner()
    yield learner
    learner.close()


def test_a_message_in_transit_is_sent_again_after_a_pull_with_the_place_that_it_continues_from(
    learner: Learner,
) -> None:
    learner.session.attach()
    learner.session.refresh()
    learner.session.send(number=1)
    asked = [learner.asked.get(timeout=10) for _ in range(3)]
    assert asked == [("pull", None), ("pull", None), ("push", 1)], "a new sampler has no place yet"

    learner.owed = DeferredReply()
    learner.endpoint.stop()
    learner.endpoint.start()
    learner.place = ("x", 0, 1)
    learner.owed.resolve(learner.answer())
    learner.session.settle()
    asked = [learner.asked.get(timeout=10) for _ in range(2)]
    assert asked == [("pull", ("x", 0, 0)), ("push", 1)]
    assert learner.session.answer["place"] == ("x", 0, 1)
    assert learner.session.reconnects == 1
    assert learner.session.wait_seconds > 0


def test_an_error_in_the_answer_to_one_message_does_not_keep_the_next_from_being_sent(
    learner: Learner,
) -> None:
    learner.session.attach()
    learner.session.send(number=1)
    learner.owed.fail("no memory")
    with pytest.raises(RemoteError, match="no memory"):
        learner.session.settle()

    learner.owed = DeferredReply()
    learner.owed.resolve(learner.answer())
    learner.session.send(number=2)
    learner.session.settle()
    asked = [learner.asked.get(timeout=10) for _ in range(3)]
    assert asked == [("pull", None), ("push", 1), ("push", 2)]
    assert learner.session.answer["used"]


def test_a_message_whose_answer_is_late_is_repeated_over_the_same_connection(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full shard or queue holds a message for hours if learner 0 is down, and each connection takes descriptors."""
    dials: list[str] = []
    dial = learner.endpoint.dial
    monkeypatch.setattr(learner.endpoint, "dial", lambda url: dials.append(url) or dial(url))
    context: Any = SimpleNamespace(token="secret", tls_port=None, stopping=threading.Event())
    plain = MemberSession(context, learner.url, learner.endpoint, "data/push", alone=False, timeout=0.2)
    parameters = LearnerSession(
        context, learner.url, learner.endpoint, "data", torch.zeros(1), alone=False, timeout=0.2
    )
    for session in (plain, parameters):
        dials.clear()
        learner.owed = DeferredReply()
        timer = threading.Timer(1.0, learner.owed.resolve, [learner.answer()])
        timer.start()
        session.attach()
        session.send(number=1)
        session.settle()
        timer.join()
        assert session.reconnects > 1
        assert len(dials) == 1

    # A new incarnation has another address.
    learner.endpoint.stop()
    learner.endpoint.start()
    session.send(number=2)
    session.settle()
    assert len(dials) == 2
