"""Calls that outlive the called member, over real sockets: each member is this process itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rltraining_trainer.transport import DeferredReply, Endpoint, Peer, PeerLost, RemoteError, Stopped
from rltraining_trainer.world import members as module
from rltraining_trainer.world.members import CALL, SHARED, Member, Members, Pending
from rltraining_trainer.world.services import Services
from rltraining_trainer.world.shared import SharedValues


class Places:
    """A directory that the test fills."""

    def __init__(self) -> None:
        self.peers: dict[str, Peer] = {}
        self.lost_names: list[str] = []

    def peer(self, name: str) -> Peer | None:
        return self.peers.get(name)

    def lost(self, name: str, peer: Peer) -> None:
        assert self.peers.pop(name) is peer
        self.lost_names.append(name)


class Here:
    """One process that is several members, each with a service `echo` and further services."""

    def __init__(self) -> None:
        self.services: dict[str, Services] = {}
        self.endpoint = Endpoint("caller", "secret", {CALL: self._answer})
        self.places = Places()
        self.stopping = threading.Event()

    def member(self, index: int, *, present: bool = True) -> Member:
        name = f"pole-sampler-{index}"
        services = self.services[name] = Services(name, lambda error: None)
        services.add("echo", lambda sender, payload: [name, payload])
        if present:
            self.come(name)
        return Member(name, "sampler", index, self.places, self.stopping)  # type: ignore[arg-type]

    def come(self, name: str) -> None:
        self.places.peers[name] = self.endpoint.dial(self.endpoint.url)

    def _answer(self, sender: str, message: Any) -> Any:
        return self.services[message[0]].answer(sender, message)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    here = Here()
    here.endpoint.start()
    yield here
    for services in here.services.values():
        services.close()
    here.endpoint.stop()


def test_a_member_is_called_and_answers(here: Here) -> None:
    answer = here.member(3).call("echo", {"gradient": torch.arange(3)})
    assert answer[0] == "pole-sampler-3"
    assert answer[1]["gradient"].tolist() == [0, 1, 2]


def test_a_call_waits_for_a_member_that_is_not_there_yet(here: Here) -> None:
    member = here.member(0, present=False)
    call = member.start("echo", 1)
    assert not call.done()
    threading.Timer(0.05, here.come, [member.name]).start()
    assert call.result(10) == [member.name, 1]


def test_a_call_that_is_lost_is_made_again_to_whoever_is_found_next(here: Here) -> None:
    member = here.member(0)
    here.services[member.name] = Services(
        "another member", lambda error: None
    )  # on the port of a dead member
    call = member.start("echo", 1)
    while not here.places.lost_names:  # on a busy machine a call takes longer than the time-out
        assert not call.done()
        time.sleep(0.001)
    with pytest.raises(PeerLost, match=r"pole-sampler-0 did not answer 'echo' within 0\.3 s"):
        call.result(0.3)
    assert here.places.lost_names == [member.name]
    here.member(0)
    assert call.result(10) == [member.name, 1]


def test_a_time_out_says_who_did_not_answer_what(here: Here) -> None:
    member = here.member(0)
    here.services[member.name].add("think", lambda sender, payload: DeferredReply())
    with pytest.raises(PeerLost, match=r"pole-sampler-0 did not answer 'think' within 0\.05 s"):
        member.call("think", timeout=0.05)


def test_a_service_that_is_not_there_is_an_error_at_once(here: Here) -> None:
    with pytest.raises(RemoteError, match="pole-sampler-0 has no service 'play'"):
        here.member(0).call("play")


def test_a_handler_may_call_others_however_many_wait_for_their_turn(here: Here) -> None:
    asked, other = here.member(0), here.member(1)
    here.services[asked.name].add_own("relay", lambda sender, payload: other.call("echo", payload, timeout=5))
    calls = [asked.start("relay", number) for number in range(12)]  # more than there are RPC threads
    assert [call.result(10) for call in calls] == [[other.name, number] for number in range(12)]


@pytest.mark.parametrize("present", [True, False])
def test_who_is_told_to_end_waits_no_longer(here: Here, present: bool) -> None:
    member = here.member(0, present=present)
    here.services[member.name].add("think", lambda sender, payload: DeferredReply())
    threading.Timer(0.05, here.stopping.set).start()
    with pytest.raises(Stopped):
        member.call("think")


def test_what_a_member_refuses_begins_with_its_name(here: Here) -> None:
    member, failed = here.member(0), DeferredReply()
    with pytest.raises(RemoteError, match=r"^pole-sampler-0 has no service 'pley', only \['echo'\]$"):
        member.call("pley")
    failed.fail("not now")
    here.services[member.name].add("play", lambda sender, payload: failed)
    with pytest.raises(RemoteError, match=r"^pole-sampler-0: not now$"):
        member.call("play")


def members(*of: Member) -> Members:
    return Members(lambda: len(of), lambda index: of[index])


def test_all_of_a_role_are_called_at_once_and_answer_in_order(here: Here) -> None:
    three = members(*(here.member(index) for index in range(3)))
    meeting = threading.Barrier(3, timeout=10)  # no member answers before all are called

    for services in here.services.values():
        services.add("meet", lambda sender, payload: meeting.wait() * 0 + payload)
    assert three.call("meet", 5) == [5, 5, 5]
    assert three.call("echo", 7) == [[f"pole-sampler-{index}", 7] for index in range(3)]


def test_those_who_do_not_answer_in_time_are_none(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    some = members(here.member(0), here.member(1, present=False), here.member(2))
    here.services["pole-sampler-2"].add("echo", lambda sender, payload: DeferredReply())
    now, answered = 0.0, Pending.done

    def done(call: Pending) -> bool:
        """Lets the time pass once the first has answered."""
        nonlocal now
        if answered(call):
            now = 1.0
        return now > 0 and answered(call)

    monkeypatch.setattr(Pending, "done", done)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    assert some.call("echo", 7, timeout=0.3) == [["pole-sampler-0", 7], None, None]


def test_members_are_a_sequence_in_parts(here: Here) -> None:
    count = 5
    five = Members(
        lambda: count, lambda index: Member(f"s{index}", "sampler", index, here.places, here.stopping)
    )  # type: ignore[arg-type]
    assert [member.index for member in five] == [0, 1, 2, 3, 4]
    assert [[member.index for member in five.part(part, 2)] for part in range(2)] == [[0, 2, 4], [1, 3]]
    assert five.part(1, 2)[1].index == 3
    count = 6
    assert [member.index for member in five.part(1, 2)] == [1, 3, 5]
    for wrong in (6, -7):
        with pytest.raises(IndexError, match=f"there are 6 of them: none has the index {wrong}"):
            five[wrong]
    assert five[-1].index == 5
    assert [member.index for member in reversed(five)] == [5, 4, 3, 2, 1, 0]
    two = five[:2]
    count = 1
    assert isinstance(two, Members), "so they can be called"
    assert [member.index for member in two] == [0, 1]


def test_a_shared_value_comes_once_and_again_when_there_is_a_new_one(here: Here) -> None:
    member, values = here.member(0), SharedValues("first life")
    asked: list[Any] = []

    def answer(sender: str, payload: Any) -> Any:
        asked.append(values.answer(sender, payload))
        return asked[-1]

    here.services[member.name].add(SHARED, answer)
    threading.Timer(0.05, values.share, ("policy", torch.ones(2))).start()
    first = member.shared("policy")
    assert (first.version, first.value.tolist()) == (1, [1, 1]), "it waits for the first one"
    asked.clear()
    assert member.shared("policy") is first
    assert asked == [("first life", 1, None)]

    values.share("policy", 5)
    assert member.shared("policy") == (2, 5)
    values = SharedValues("second life")
    values.share("policy", 6)
    values.share("policy", 7)
    assert member.shared("policy") == (2, 7), "the same version, but of another life"
