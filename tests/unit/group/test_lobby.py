"""Learner 0's lobby, called as its endpoint would call it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
import torch
from rltraining_trainer.group.generations import Candidate
from rltraining_trainer.group.lobby import Lobby
from rltraining_trainer.transport import DeferredReply, Stopped

FIRST = Candidate(index=0, generation=0, updates=5, device="cpu")
FOREVER = 60.0


def join(lobby: Lobby, index: int, updates: int = 0) -> list[Any]:
    """The answer, once there is one."""
    return answers(lobby, "join", asdict(Candidate(index, 0, updates, "cpu")))


def answers(lobby: Lobby, service: str, payload: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    answer = lobby.services[service](f"learner-{payload.get('index')}", payload)
    if isinstance(answer, DeferredReply):
        answer.attach(found.append)
    else:
        found.append(("ok", answer))
    return found


@pytest.fixture
def lobby() -> Iterator[Lobby]:
    lobby = Lobby()
    yield lobby
    lobby.finish()


def test_those_who_wait_are_told_of_the_generation(lobby: Lobby) -> None:
    first, second = join(lobby, 1, updates=7), join(lobby, 2)
    assert lobby.occupied
    assert not first

    generation = lobby.form(FIRST, [1, 2], FOREVER, threading.Event())

    assert (generation.members, generation.source) == ((0, 1, 2), 1)
    assert first == second == [("ok", {"done": False, "generation": asdict(generation)})]
    assert not lobby.occupied


def test_it_forms_when_the_last_one_comes(lobby: Lobby) -> None:
    formed = threading.Event()

    def form() -> None:
        lobby.form(FIRST, [1, 2], FOREVER, threading.Event())
        formed.set()

    thread = threading.Thread(target=form)
    thread.start()
    join(lobby, 2)
    assert not formed.is_set()
    join(lobby, 1)
    assert formed.wait(10)
    thread.join()


def test_nobody_waits_for_those_who_do_not_come(lobby: Lobby) -> None:
    join(lobby, 2)

    assert lobby.form(FIRST, [1, 2], 0.0, threading.Event()).members == (0, 2)
    assert lobby.form(FIRST, [2], 0.0, threading.Event()).members == (0,)


def test_a_stop_ends_the_wait(lobby: Lobby) -> None:
    stopping = threading.Event()
    stopping.set()

    with pytest.raises(Stopped):
        lobby.form(FIRST, [1], FOREVER, stopping)


def test_a_learner_that_was_started_anew_takes_its_predecessors_place(lobby: Lobby) -> None:
    before, after = join(lobby, 1, updates=9), join(lobby, 1, updates=0)

    generation = lobby.form(FIRST, [1], FOREVER, threading.Event())

    assert before == [("error", "learner 1 has joined again")]
    assert after[0][1]["generation"] == asdict(generation)
    assert generation.source == 0


def test_only_learner_0_is_learner_0(lobby: Lobby) -> None:
    with pytest.raises(ValueError, match="learner 0 cannot join"):
        join(lobby, 0)


def test_all_who_come_after_the_last_round_are_told_that_the_run_is_done(lobby: Lobby) -> None:
    early = join(lobby, 1)
    lobby.finish()

    assert early == join(lobby, 2) == [("ok", {"done": True})]
    assert not lobby.occupied


def test_a_reader_waits_for_the_value(lobby: Lobby) -> None:
    number = lobby.form(FIRST, [], 0.0, threading.Event()).number
    value = torch.ones(3)
    early = answers(lobby, "store_get", {"number": number, "key": "a"})
    assert not early

    answers(lobby, "store_set", {"number": number, "key": "a", "value": value})

    assert early == answers(lobby, "store_get", {"number": number, "key": "a"}) == [("ok", value)]


def test_the_store_of_a_generation_ends_with_it(lobby: Lobby) -> None:
    number = lobby.form(FIRST, [], 0.0, threading.Event()).number
    answers(lobby, "store_set", {"number": number, "key": "a", "value": 1})
    early = answers(lobby, "store_get", {"number": number, "key": "b"})

    after = Candidate(index=0, generation=number, updates=5, device="cpu")
    lobby.form(after, [], 0.0, threading.Event())

    assert early == [("error", "the next generation has formed")]
    assert answers(lobby, "store_get", {"number": number, "key": "a"}) == [("error", "generation 1 is over")]
    assert answers(lobby, "store_set", {"number": number, "key": "a", "value": 1}) == [
        ("error", "generation 1 is over")
    ]
    assert not answers(lobby, "store_get", {"number": number + 1, "key": "a"})


def test_readers_do_not_wait_for_a_member_that_has_left(lobby: Lobby) -> None:
    join(lobby, 1)
    number = lobby.form(FIRST, [1], FOREVER, threading.Event()).number
    reader = answers(lobby, "store_get", {"number": number, "key": "address of learner 1"})

    join(lobby, 2)
    assert not reader
    join(lobby, 1)
    assert reader == [("error", "learner 1 has left the generation")]
