"""Credits: who may collect, and what becomes of the credits of samplers that do not return."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rltraining_trainer.dataflow.credits import LEASE_COLLECTIONS, LEASE_SECONDS, Credits


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Samplers:
    """Requests credits, and records who got one, in order."""

    def __init__(self, limit: int | None) -> None:
        self.clock = Clock()
        self.credits = Credits(self.clock)
        self.credits.limit = limit
        self.granted: list[str] = []

    def request(self, *names: str, queued: int = 0) -> list[str]:
        """Returns the samplers that get a credit now."""
        for name in names:
            self.credits.request(name, self._grant(name))
        return self.grant(queued)

    def grant(self, queued: int = 0) -> list[str]:
        before = len(self.granted)
        for grant in self.credits.grant(queued):
            grant()
        return self.granted[before:]

    def _grant(self, name: str) -> Callable[[], None]:
        return lambda: self.granted.append(name)


def test_credits_are_granted_in_the_order_of_requests() -> None:
    samplers = Samplers(limit=2)
    assert samplers.request("a", "b", "c", "d") == ["a", "b"]
    assert samplers.credits.waiting == 2

    samplers.credits.spend("b")
    assert samplers.grant(queued=1) == [], "its item is queued"
    assert samplers.request("b") == ["c"], "its item is used, and c is first"
    samplers.credits.spend("a")
    assert samplers.grant() == ["d"]


def test_without_a_limit_all_get_a_credit() -> None:
    assert Samplers(limit=None).request("a", "b", "c", queued=99) == ["a", "b", "c"]


def test_a_repeated_request_keeps_its_place_and_is_answered_too() -> None:
    samplers = Samplers(limit=1)
    samplers.request("a", "b", "c")
    samplers.request("b")
    samplers.credits.spend("a")
    assert samplers.grant() == ["b", "b"]


def test_a_restarted_sampler_takes_over_its_credit() -> None:
    samplers = Samplers(limit=1)
    samplers.request("a", "b")
    assert samplers.request("a") == ["a"]
    assert samplers.credits.collecting == 1


def test_the_credit_of_a_lost_sampler_goes_to_another_when_its_lease_ends() -> None:
    samplers = Samplers(limit=1)
    samplers.request("lost", "b")
    samplers.clock.now += LEASE_SECONDS
    assert samplers.grant() == []
    samplers.clock.now += 0.1
    assert samplers.grant() == ["b"]

    samplers.credits.spend("lost")  # it was only slow
    assert samplers.credits.collecting == 1


def test_the_lease_is_longer_where_items_take_longer() -> None:
    samplers = Samplers(limit=1)
    samplers.request("a")
    samplers.clock.now += 60.0
    samplers.credits.spend("a")
    samplers.request("a", "b")
    samplers.clock.now += 60.0 * LEASE_COLLECTIONS
    assert samplers.grant() == []
    samplers.clock.now += 0.1
    assert samplers.grant() == ["b"]


@pytest.mark.parametrize("queued", [0, 5])
def test_the_end_grants_all(queued: int) -> None:
    samplers = Samplers(limit=1)
    samplers.request("a", "b", "c", queued=queued)
    for grant in samplers.credits.close():
        grant()
    assert sorted(samplers.granted) == ["a", "b", "c"]
    assert samplers.request("d", queued=9) == ["d"]
