"""Credits: the order of grants, leases, and lost samplers."""

from __future__ import annotations

import pytest
from manual_clock import Clock
from rltraining_trainer.dataflow.credits import (
    ABSENT_SECONDS,
    FIRST_LEASE_SECONDS,
    HOLD_SECONDS,
    LEASE_COLLECTIONS,
    LEASE_SECONDS,
    Credits,
    Reply,
)


class Samplers:
    """Requests credits, and records the grants in order."""

    def __init__(self, limit: int | None) -> None:
        self.clock = Clock()
        self.credits = Credits(self.clock)
        self.credits.limit = limit
        self.granted: list[str] = []
        self.held_back: list[str] = []
        """Samplers that should request again."""

    def request(self, *names: str, queued: int = 0) -> list[str]:
        """Returns the samplers that get a credit now."""
        for name in names:
            self.credits.request(name, self._reply(name))
        return self.grant(queued)

    def grant(self, queued: int = 0) -> list[str]:
        before = len(self.granted)
        for reply in self.credits.take(queued):
            reply()
        return self.granted[before:]

    def _reply(self, name: str) -> Reply:
        return lambda credit: (self.granted if credit else self.held_back).append(name)


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
    samplers.request("lost")
    samplers.credits.spend("lost")
    samplers.request("lost", "b")
    samplers.clock.now += LEASE_SECONDS
    assert samplers.grant() == []
    samplers.clock.now += 1.0
    assert samplers.grant() == ["b"]

    samplers.credits.spend("lost")  # it was only slow
    assert samplers.credits.collecting == 1


def test_the_first_lease_is_long_since_nobody_knows_how_long_an_item_takes() -> None:
    samplers = Samplers(limit=1)
    samplers.request("slow", "b")
    samplers.clock.now += FIRST_LEASE_SECONDS + 1.0
    assert samplers.request("b") == ["b", "b"]

    samplers.clock.now += 10.0
    samplers.credits.spend("slow")  # the duration of its item is learnt nevertheless
    samplers.request("c")
    samplers.clock.now += FIRST_LEASE_SECONDS
    assert samplers.request("c") == [], "b may take as long"


def test_samplers_that_wait_for_long_show_that_they_live_or_lose_their_place() -> None:
    samplers = Samplers(limit=1)
    samplers.request("a")
    samplers.credits.spend("a")
    samplers.request("a", "lost", "b", "c")
    samplers.clock.now += HOLD_SECONDS
    samplers.request("a")  # it continues to collect
    assert samplers.held_back == ["lost", "b", "c"]

    samplers.request("c", "b")
    samplers.clock.now += ABSENT_SECONDS
    samplers.grant()
    samplers.credits.spend("a")
    assert samplers.grant() == ["b"], "places are kept"
    assert samplers.credits.waiting == 1


def test_the_lease_is_longer_where_items_take_longer() -> None:
    samplers = Samplers(limit=1)
    samplers.request("a")
    samplers.clock.now += 30.0
    samplers.credits.spend("a")
    samplers.request("a")
    samplers.clock.now += 30.0 * LEASE_COLLECTIONS
    assert samplers.request("b") == []
    samplers.clock.now += 1.0
    assert samplers.grant() == ["b"]


@pytest.mark.parametrize("queued", [0, 5])
def test_the_end_grants_all(queued: int) -> None:
    samplers = Samplers(limit=1)
    samplers.request("a", "b", "c", queued=queued)
    for reply in samplers.credits.close():
        reply()
    assert sorted(samplers.granted) == ["a", "b", "c"]
    assert samplers.request("d", queued=9) == ["d"]
