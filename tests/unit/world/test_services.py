"""What a member answers, and to whom."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from rltraining_trainer.errors import TrainerError, UserCodeError
from rltraining_trainer.transport import Parked, Stopped
from rltraining_trainer.world.services import Services

ME = "pole-sampler-1"


@pytest.fixture
def failures() -> list[TrainerError]:
    return []


@pytest.fixture
def services(failures: list[TrainerError]) -> Services:
    return Services(ME, failures.append)


def settled(answer: Any) -> list[Any]:
    """What a parked answer came to; empty while it is owed."""
    found: list[Any] = []
    assert isinstance(answer, Parked)
    answer.attach(found.append)
    return found


def test_a_handler_is_told_who_calls_and_its_answer_goes_back(services: Services) -> None:
    services.add_own("play", lambda sender, payload: [sender, payload])
    assert services.answer("pole-learner-0", (ME, "play", 3)) == ["pole-learner-0", 3]


def test_a_call_to_somebody_else_is_lost_so_that_the_caller_looks_for_him(services: Services) -> None:
    services.add_own("play", lambda sender, payload: 1)
    assert settled(services.answer("pole-learner-0", ("pole-sampler-0", "play", 3))) == [
        ("lost", "pole-sampler-0 is not here any more")
    ]


def test_a_service_that_is_not_there_is_told_with_those_that_are(services: Services) -> None:
    services.add_own("play", lambda sender, payload: 1)
    services.add("world/shared", lambda sender, payload: 1)
    assert settled(services.answer("pole-learner-0", (ME, "pley", 3))) == [
        ("error", "pole-sampler-1 has no service 'pley', only ['play']")
    ]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit("no")])
def test_a_handler_that_raises_ends_the_process_and_answers_nothing(
    services: Services, failures: list[TrainerError], error: BaseException
) -> None:
    def play(sender: str, payload: Any) -> Any:
        raise error

    services.add_own("play", play)
    assert settled(services.answer("pole-learner-0", (ME, "play", 3))) == []
    (failure,) = failures
    assert isinstance(failure, UserCodeError)
    assert str(failure).startswith(f"service 'play' raised {type(error).__name__}: no\nTraceback")


def test_a_handler_that_is_stopped_while_it_calls_others_is_no_failure(
    services: Services, failures: list[TrainerError]
) -> None:
    def play(sender: str, payload: Any) -> Any:
        raise Stopped("told to end")

    services.add_own("play", play)
    assert settled(services.answer("pole-learner-0", (ME, "play", 3))) == []
    assert failures == []


def test_calls_to_one_service_wait_for_each_other(services: Services) -> None:
    inside, leave, order = threading.Event(), threading.Event(), []

    def play(sender: str, payload: Any) -> Any:
        order.append(f"{payload} begins")
        inside.set()
        assert leave.wait(10)
        order.append(f"{payload} ends")

    services.add_own("play", play)
    callers = [threading.Thread(target=services.answer, args=("caller", (ME, "play", n))) for n in (1, 2)]
    callers[0].start()
    assert inside.wait(10)
    callers[1].start()
    leave.set()
    for caller in callers:
        caller.join(10)
    assert order == ["1 begins", "1 ends", "2 begins", "2 ends"]
