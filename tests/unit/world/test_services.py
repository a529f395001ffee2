"""A member's answers, and the callers that get them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from rltraining_trainer.errors import TrainerError, UserCodeError
from rltraining_trainer.transport import DeferredReply, Stopped
from rltraining_trainer.world.services import Services

ME = "pole-sampler-1"


@pytest.fixture
def failures() -> list[TrainerError]:
    return []


@pytest.fixture
def services(failures: list[TrainerError]) -> Iterator[Services]:
    services = Services(ME, failures.append)
    yield services
    services.close()


def settled(answer: Any) -> tuple[str, Any]:
    """Returns the result of a deferred answer."""
    found: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    assert isinstance(answer, DeferredReply)
    answer.attach(found.put)
    return found.get(timeout=10)


def is_owed(services: Services, answer: Any) -> bool:
    """Returns whether a deferred answer is still owed after the next call, which ends the deferred call."""
    found: list[Any] = []
    assert isinstance(answer, DeferredReply)
    answer.attach(found.append)
    settled(services.answer("pole-learner-0", (ME, "play", "next")))
    return not found


def test_a_handler_is_told_who_calls_and_its_answer_goes_back(services: Services) -> None:
    services.add_own("play", lambda sender, payload: [sender, payload])
    assert settled(services.answer("pole-learner-0", (ME, "play", 3))) == ("ok", ["pole-learner-0", 3])


def test_what_a_handler_parks_goes_back_when_it_is_resolved(services: Services) -> None:
    later = DeferredReply()
    services.add_own("play", lambda sender, payload: later if payload == 3 else None)
    answer = services.answer("pole-learner-0", (ME, "play", 3))
    assert is_owed(services, answer)
    later.resolve(4)
    assert settled(answer) == ("ok", 4)


def test_who_closes_waits_for_the_handler_that_is_busy_and_begins_no_other(services: Services) -> None:
    inside, leave, ended = threading.Event(), threading.Event(), []

    def play(sender: str, payload: Any) -> None:
        inside.set()
        assert leave.wait(10)
        ended.append(payload)

    services.add_own("play", play)
    for number in (1, 2):
        services.answer("pole-learner-0", (ME, "play", number))
    assert inside.wait(10)
    closing = threading.Thread(target=services.close)
    closing.start()
    leave.set()
    closing.join(10)
    assert ended in ([1], [1, 2]), "the second may have begun just before"
    assert "service-play" not in [thread.name for thread in threading.enumerate()]


def test_a_call_to_somebody_else_is_lost_so_that_the_caller_looks_for_him(services: Services) -> None:
    services.add_own("play", lambda sender, payload: 1)
    assert settled(services.answer("pole-learner-0", ("pole-sampler-0", "play", 3))) == (
        "lost",
        "pole-sampler-0 is not here any more",
    )


def test_a_service_that_is_not_there_is_told_with_those_that_are(services: Services) -> None:
    services.add_own("play", lambda sender, payload: 1)
    services.add("world/shared", lambda sender, payload: 1)
    assert settled(services.answer("pole-learner-0", (ME, "pley", 3))) == (
        "error",
        "pole-sampler-1 has no service 'pley', only ['play']",
    )


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit("no")])
def test_a_handler_that_raises_ends_the_process_and_answers_nothing(
    services: Services, failures: list[TrainerError], error: BaseException
) -> None:
    def play(sender: str, payload: Any) -> Any:
        if payload == 3:
            raise error

    services.add_own("play", play)
    assert is_owed(services, services.answer("pole-learner-0", (ME, "play", 3)))
    (failure,) = failures
    assert isinstance(failure, UserCodeError)
    first, _, trace = str(failure).partition("\n")
    assert re.fullmatch(
        rf"service 'play' raised {type(error).__name__}: no \(test_services\.py, line \d+\)", first
    ), first
    assert trace.startswith("Traceback")


@pytest.mark.parametrize("later", [False, True])
def test_an_answer_that_cannot_be_sent_is_the_error_of_who_gives_it(
    services: Services, failures: list[TrainerError], later: bool
) -> None:
    deferred, wrong = DeferredReply(), {"gradient": np.zeros(2)}

    def play(sender: str, payload: Any) -> Any:
        return None if payload == "next" else deferred if later else wrong

    services.add_own("play", play)
    answer = services.answer("pole-learner-0", (ME, "play", 3))
    deferred.resolve(wrong)  # type: ignore[arg-type]
    assert is_owed(services, answer)
    (failure,) = failures
    assert isinstance(failure, UserCodeError)
    assert str(failure) == (
        "the answer of service 'play' is refused: a ndarray cannot be sent: use tensors and plain values"
    )


def test_a_handler_that_is_stopped_while_it_calls_others_is_no_failure(
    services: Services, failures: list[TrainerError]
) -> None:
    def play(sender: str, payload: Any) -> Any:
        if payload == 3:
            raise Stopped("asked to end")

    services.add_own("play", play)
    assert is_owed(services, services.answer("pole-learner-0", (ME, "play", 3)))
    assert failures == []


def test_calls_to_one_service_wait_for_each_other(services: Services) -> None:
    inside, leave, order = threading.Event(), threading.Event(), []

    def play(sender: str, payload: Any) -> Any:
        order.append(f"{payload} begins")
        inside.set()
        assert leave.wait(10)
        order.append(f"{payload} ends")

    services.add_own("play", play)
    first, second = (services.answer("caller", (ME, "play", number)) for number in (1, 2))
    assert inside.wait(10)
    leave.set()
    assert (settled(first), settled(second)) == (("ok", None), ("ok", None))
    assert order == ["1 begins", "1 ends", "2 begins", "2 ends"]
