"""Learner 0's registry of announced members, and its answers."""

from __future__ import annotations

from typing import Any

from rltraining_trainer.world.directory import Registry
from service_answers import answers_of


def announce(registry: Registry, name: str, url: str, *, wait: bool) -> list[Any]:
    """Returns the answers received so far."""
    return answers_of(registry.services["announce"](name, (url, wait)))


def test_a_member_is_found_where_it_said_last() -> None:
    registry = Registry()
    announce(registry, "sampler-0", "uv://a:1", wait=False)
    announce(registry, "sampler-0", "uv://a:2", wait=True)
    assert registry.services["find"]("learner-1", ["sampler-0", "sampler-1"]) == {"sampler-0": "uv://a:2"}


def test_who_waits_hears_when_the_run_is_done() -> None:
    registry = Registry()
    assert announce(registry, "sampler-0", "uv://a:1", wait=False) == [("ok", False)]
    waiting = announce(registry, "sampler-0", "uv://a:1", wait=True)
    assert waiting == []
    registry.finish()
    assert waiting == [("ok", True)]
    assert announce(registry, "sampler-1", "uv://b:1", wait=True) == [("ok", True)], (
        "a later member receives it too"
    )


def test_of_one_member_only_the_newest_announcement_waits() -> None:
    registry = Registry()
    first = announce(registry, "sampler-0", "uv://a:1", wait=True)
    second = announce(registry, "sampler-0", "uv://a:2", wait=True)
    assert (first, second) == ([("ok", False)], [])
    registry.finish()
    assert second == [("ok", True)]
