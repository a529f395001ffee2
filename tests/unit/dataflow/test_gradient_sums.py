"""Statistics that samplers in step sum at the beginning of an iteration."""

from __future__ import annotations

import pytest
import torch
from gradient_senders import DEADLINE, InStep, Sender
from rltraining_trainer.dataflow.gradients.accounts import Place


def add(world: InStep, name: str, value: float, place: Place | None = None) -> Sender:
    sender = world.senders.get(name) or world.start(name)
    world.gradients.add(
        name,
        place or world.gradients.place,
        torch.tensor([value]),
        lambda total: sender.sums.append(None if total is None else total.tolist()),
    )
    return sender


def test_whoever_is_late_gets_the_sum_of_the_others_and_costs_one_deadline() -> None:
    world = InStep("ab")
    a = add(world, "a", 1.0)
    world.clock.now += DEADLINE
    assert not world.ready
    assert a.sums == [[1.0]]
    assert add(world, "b", 2.0).sums == [[1.0]]
    world.push("a")
    assert world.ready, "the update does not wait for b another time"
    world.update()
    add(world, "a", 1.0)
    assert not world.ready
    assert a.sums == [[1.0], [1.0]]


@pytest.mark.parametrize("place", [Place("x", 7), Place("w", 0)])
def test_the_part_of_another_iteration_is_in_no_sum(place: Place) -> None:
    world = InStep("ab")
    assert add(world, "b", 8.0, place).sums == [None]
    add(world, "a", 1.0)
    add(world, "b", 2.0)
    assert not world.ready
    assert world.senders["a"].sums == [[3.0]]


def test_a_sum_that_never_came_ends_with_its_iteration() -> None:
    """The learner updates as soon as it has all gradients."""
    world = InStep("ab")
    a = add(world, "a", 1.0)
    world.push("ab")
    world.update()
    assert a.sums == [None]
    b = add(world, "b", 2.0)
    add(world, "a", 1.0)
    assert not world.ready
    assert (a.sums, b.sums) == ([None, [3.0]], [[3.0]])


def test_all_get_the_sum_when_all_have_come_and_a_part_that_is_sent_again_counts_once() -> None:
    world = InStep("ab")
    a = add(world, "a", 1.0)
    add(world, "a", 1.0)
    assert not world.ready
    assert a.sums == []
    b = add(world, "b", 2.0)
    assert not world.ready
    assert (a.sums, b.sums) == ([[3.0], [3.0]], [[3.0]])


def test_a_sum_that_is_complete_when_its_iteration_is_given_up_is_answered() -> None:
    """All awaited samplers are late or gone; a newcomer waits for the next iteration."""
    world = InStep("ab", exchanges=2)
    world.iterate("a")
    world.start("a", "second life").join()
    b = add(world, "b", 2.0)
    assert not world.ready
    assert b.sums == [[2.0]]
