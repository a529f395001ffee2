"""Learner 0's rendezvous, called as its endpoint does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from rltraining_trainer.group.rendezvous import Candidate, Rendezvous, RendezvousStore
from rltraining_trainer.transport import PeerLost, RemoteError, Stopped
from service_answers import answers_of

FIRST = Candidate(index=0, generation=0, updates=5, device="cpu")
FOREVER = 60.0


def join(rendezvous: Rendezvous, index: int, updates: int = 0) -> list[Any]:
    """Returns the answers received so far."""
    return answers(rendezvous, "join", asdict(Candidate(index, 0, updates, "cpu")))


def answers(rendezvous: Rendezvous, service: str, payload: dict[str, Any]) -> list[Any]:
    return answers_of(rendezvous.services[service](f"learner-{payload.get('index')}", payload))


@pytest.fixture
def rendezvous() -> Iterator[Rendezvous]:
    rendezvous = Rendezvous()
    yield rendezvous
    rendezvous.finish()


def test_those_who_wait_are_told_of_the_generation(rendezvous: Rendezvous) -> None:
    first, second = join(rendezvous, 1, updates=7), join(rendezvous, 2)
    assert rendezvous.has_candidates
    assert not first

    generation = rendezvous.form(FIRST, [1, 2], FOREVER, threading.Event())

    assert (generation.members, generation.source) == ((0, 1, 2), 1)
    assert first == second == [("ok", {"done": False, "generation": asdict(generation)})]
    assert not rendezvous.has_candidates


def test_it_forms_when_the_last_one_comes(rendezvous: Rendezvous) -> None:
    formed = threading.Event()

    def form() -> None:
        rendezvous.form(FIRST, [1, 2], FOREVER, threading.Event())
        formed.set()

    thread = threading.Thread(target=form)
    thread.start()
    join(rendezvous, 2)
    assert not formed.is_set()
    join(rendezvous, 1)
    assert formed.wait(10)
    thread.join()


def test_nobody_waits_for_those_who_do_not_come(rendezvous: Rendezvous) -> None:
    join(rendezvous, 2)

    assert rendezvous.form(FIRST, [1, 2], 0.0, threading.Event()).members == (0, 2)
    assert rendezvous.form(FIRST, [2], 0.0, threading.Event()).members == (0,)


def test_a_stop_ends_the_wait(rendezvous: Rendezvous) -> None:
    stopping = threading.Event()
    stopping.set()

    with pytest.raises(Stopped):
        rendezvous.form(FIRST, [1], FOREVER, stopping)


def test_a_learner_that_was_started_anew_takes_its_predecessors_place(rendezvous: Rendezvous) -> None:
    before, after = join(rendezvous, 1, updates=9), join(rendezvous, 1, updates=0)

    generation = rendezvous.form(FIRST, [1], FOREVER, threading.Event())

    assert before == [("error", "learner 1 has joined again")]
    assert after[0][1]["generation"] == asdict(generation)
    assert generation.source == 0


def test_only_learner_0_is_learner_0(rendezvous: Rendezvous) -> None:
    with pytest.raises(ValueError, match="learner 0 cannot join"):
        join(rendezvous, 0)


def test_all_who_come_after_the_last_round_are_told_that_the_run_is_done(rendezvous: Rendezvous) -> None:
    early = join(rendezvous, 1)
    rendezvous.finish()

    assert early == join(rendezvous, 2) == [("ok", {"done": True})]
    assert not rendezvous.has_candidates


def test_a_reader_waits_for_the_value(rendezvous: Rendezvous) -> None:
    number = rendezvous.form(FIRST, [], 0.0, threading.Event()).number
    value = torch.ones(3)
    early = answers(rendezvous, "store_get", {"number": number, "key": "a"})
    assert not early

    answers(rendezvous, "store_set", {"number": number, "key": "a", "value": value})

    assert early == answers(rendezvous, "store_get", {"number": number, "key": "a"}) == [("ok", value)]


def test_the_store_of_a_generation_ends_with_it(rendezvous: Rendezvous) -> None:
    number = rendezvous.form(FIRST, [], 0.0, threading.Event()).number
    answers(rendezvous, "store_set", {"number": number, "key": "a", "value": 1})
    early = answers(rendezvous, "store_get", {"number": number, "key": "b"})

    after = Candidate(index=0, generation=number, updates=5, device="cpu")
    rendezvous.form(after, [], 0.0, threading.Event())

    assert early == [("error", "the next round has formed")]
    assert answers(rendezvous, "store_get", {"number": number, "key": "a"}) == [("error", "round 1 is over")]
    assert answers(rendezvous, "store_set", {"number": number, "key": "a", "value": 1}) == [
        ("error", "round 1 is over")
    ]
    assert not answers(rendezvous, "store_get", {"number": number + 1, "key": "a"})


def test_readers_do_not_wait_for_a_member_that_has_left(rendezvous: Rendezvous) -> None:
    join(rendezvous, 1)
    number = rendezvous.form(FIRST, [1], FOREVER, threading.Event()).number
    reader = answers(rendezvous, "store_get", {"number": number, "key": "address of learner 1"})

    join(rendezvous, 2)
    assert not reader
    join(rendezvous, 1)
    assert reader == [("error", "learner 1 has left the round")]


def test_learner_0_uses_the_store_without_a_connection(rendezvous: Rendezvous) -> None:
    """A connection to itself may break, and learner 0 would not notice that it has to dial again."""
    join(rendezvous, 1)
    generation = rendezvous.form(FIRST, [1], FOREVER, threading.Event())
    store = RendezvousStore(rendezvous, generation.number, 0.05)
    store.set("rank 0", b"here")
    assert store.get("rank 0") == b"here"

    with pytest.raises(PeerLost, match="learner 0: no answer in time"):
        store.get("rank 1")
    later = replace(FIRST, generation=generation.number)
    rendezvous.form(later, [], FOREVER, threading.Event())
    with pytest.raises(RemoteError, match="is over"):
        store.get("rank 1")


def test_a_value_reaches_learner_0_as_soon_as_another_learner_stores_it(rendezvous: Rendezvous) -> None:
    join(rendezvous, 1)
    generation = rendezvous.form(FIRST, [1], FOREVER, threading.Event())
    call = rendezvous.call("store_get", {"number": generation.number, "key": "rank 1"}, timeout=10.0)
    assert not call.done()
    answers(rendezvous, "store_set", {"number": generation.number, "key": "rank 1", "value": torch.ones(1)})
    assert call.result().tolist() == [1.0]
