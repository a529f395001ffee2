"""The replay memory of one process against a naive one, and each of its documented properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from rltraining_trainer.dataflow.replay import Column, ReplayBuffer, SampleResult
from soak import SOAK
from through_a_file import through_a_file
from torch import Tensor

from tests.unit.dataflow.naive_replay import NaiveReplay, random_items

COLUMNS = {
    "observation": Column((3, 2), torch.uint8),
    "next_observation": Column((3, 2), torch.uint8),
    "action": Column((), torch.int64),
    "done": Column((), torch.bool),
    "reward": Column((), torch.float32),
    "large": Column((70,), torch.float64),
}
ONE = {"value": Column((), torch.int64)}


def buffer_of(
    *priorities: float, capacity: int = 8, exponent: float = 1.0, kind="Prioritized", seed: int = 0
):
    """Returns a buffer of one column with the values 0, 1, 2, ... and these priorities."""
    buffer = ReplayBuffer(capacity, ONE, kind=kind, priority_exponent=exponent, seed=seed)
    add(buffer, *priorities)
    return buffer


def add(buffer: ReplayBuffer, *priorities: float) -> None:
    first = buffer.counts.inserted
    buffer.add({"value": torch.arange(first, first + len(priorities))}, torch.tensor(priorities))
    buffer.check_valid()


def same(left: SampleResult, right: SampleResult) -> bool:
    parts = ("slots", "versions", "probabilities", "ages")
    return all(torch.equal(getattr(left, part), getattr(right, part)) for part in parts) and all(
        torch.equal(left.items[name], right.items[name]) for name in left.items
    )


priority = st.just(0.0) | st.floats(1e-6, 1e6)


class AnyOperations(RuleBasedStateMachine):
    """A NaiveReplay receives the same operations, and each draw is compared with it."""

    @initialize(
        capacity=st.integers(1, 9),
        kind=st.sampled_from(["Prioritized", "Uniform"]),
        exponent=st.sampled_from([0.0, 0.6, 1.0]),
        frame_stack=st.sampled_from([1, 3]),
        kinds=st.sampled_from([2, 200]),
    )
    def begin(self, capacity: int, kind, exponent: float, frame_stack: int, kinds: int) -> None:
        self.arguments = {"kind": kind, "priority_exponent": exponent, "frame_stack": frame_stack}
        self.capacity, self.kinds = capacity, kinds
        self.buffer = ReplayBuffer(capacity, COLUMNS, **self.arguments, seed=3)
        self.naive = NaiveReplay(capacity, None if kind == "Uniform" else exponent)
        self.draws: list[SampleResult] = []
        self.calls = self.sampled = self.applied = self.stale = 0

    @rule(priorities=st.lists(priority, max_size=25))
    def add(self, priorities: list[float]) -> None:
        self.calls += 1
        items = random_items(COLUMNS, len(priorities), self.calls, self.kinds)
        weights = torch.tensor(priorities, dtype=torch.float64)
        self.buffer.add(items, weights)
        self.naive.add(items, weights)

    @rule(bad=st.sampled_from([-1e-9, math.nan, math.inf, -math.inf]))
    def add_what_is_refused(self, bad: float) -> None:
        with pytest.raises(ValueError, match="finite and at least 0"):
            self.buffer.add(random_items(COLUMNS, 2, 0), torch.tensor([1.0, bad]))

    @rule(count=st.integers(1, 40))
    def sample(self, count: int) -> None:
        if sum(self.naive.weights().values()) == 0:
            with pytest.raises(ValueError, match="nothing can be drawn"):
                self.buffer.sample(count)
            return
        draw = self.buffer.sample(count)
        assert len(draw.slots) == count
        self.naive.check(draw)
        self.sampled += count
        self.draws.append(draw)

    @precondition(lambda self: self.draws)
    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        draw = data.draw(st.sampled_from(self.draws))
        count = len(draw.slots)
        values = torch.tensor(data.draw(st.lists(priority, min_size=count, max_size=count)))
        updated = self.buffer.update(draw.slots, draw.versions, values)
        assert updated == self.naive.update(draw.versions, values)
        self.applied += updated.applied
        self.stale += updated.stale

    @rule()
    def clear(self) -> None:
        self.buffer.clear()
        self.naive.clear()

    @rule(used=st.booleans())
    def restore(self, used: bool) -> None:
        other = ReplayBuffer(self.capacity, COLUMNS, **self.arguments, seed=99)
        if used and self.naive.inserted:
            other.add(random_items(COLUMNS, 1, 0), torch.ones(1))
        other.set_state(through_a_file(self.buffer.get_state()))
        other.check_valid()
        if self.buffer.priority_sum:
            assert same(self.buffer.sample(7), other.sample(7))
            self.sampled += 7
        self.buffer = other

    @invariant()
    def it_is_valid(self) -> None:
        buffer = self.buffer
        buffer.check_valid()
        size, weights = len(self.naive.items), self.naive.weights().values()
        assert buffer.size == size
        inserted = self.naive.inserted
        assert buffer.counts == (inserted, inserted - size, self.sampled, self.applied, self.stale)
        assert buffer.priority_sum == pytest.approx(sum(weights), rel=1e-12)
        smallest = min((weight for weight in weights if weight > 0), default=math.inf)
        assert buffer.min_priority == pytest.approx(smallest, rel=1e-12)


TestAnyOperations = AnyOperations.TestCase
TestAnyOperations.settings = settings(max_examples=25 * SOAK, stateful_step_count=25)


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
def test_draws_follow_the_powered_priorities(exponent: float) -> None:
    priorities = np.array([1.0, 2, 3, 4, 5, 0.5, 8, 10])
    buffer = buffer_of(*priorities, exponent=exponent)
    drawn = torch.cat([buffer.sample(500).items["value"] for _ in range(100)])
    expected = priorities**exponent / (priorities**exponent).sum()
    np.testing.assert_allclose(np.bincount(drawn, minlength=8) / 50_000, expected, rtol=1e-2)


def test_a_state_older_than_the_buffer_is_refused() -> None:
    buffer = buffer_of(1, 1)
    state = buffer.get_state()
    add(buffer, 1.0)
    with pytest.raises(ValueError, match="versions cannot go back"):
        buffer.set_state(state)
    assert buffer.size == 3


@pytest.mark.parametrize("other", [{"capacity": 9}, {"kind": "Uniform"}], ids=str)
def test_a_state_of_another_form_is_refused(other: dict) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        buffer_of(**other).set_state(buffer_of(1, 2).get_state())


def test_a_state_is_a_copy_and_can_get_another_exponent() -> None:
    buffer = buffer_of(4, 9)
    state = buffer.get_state()
    buffer.update(torch.tensor([0]), torch.tensor([0]), torch.tensor([1.0]))
    add(buffer, 1.0)
    other = buffer_of(exponent=0.5)
    other.set_state(state)
    assert (other.size, other.priority_sum, other.min_priority) == (2, 5, 2)


@pytest.mark.parametrize(
    ("slot", "version"), [(0, 1), (1, 8), (-1, -1), (-1, 7), (8, 8), (2**40, 2**40), (5, 5)], ids=str
)
def test_a_slot_that_does_not_hold_that_version_is_stale(slot: int, version: int) -> None:
    buffer = buffer_of(1, 1, 1)
    assert buffer.update(torch.tensor([slot]), torch.tensor([version]), torch.tensor([5.0])) == (0, 1)
    buffer.check_valid()
    assert buffer.priority_sum == 3


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_an_update_with_a_bad_priority_is_refused_whole(bad: float) -> None:
    buffer = buffer_of(1, 1)
    with pytest.raises(ValueError, match="finite and at least 0"):
        buffer.update(torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([5.0, bad]))
    with pytest.raises(ValueError, match="2 slots, 2 versions and 1 priorities"):
        buffer.update(torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([5.0]))
    assert (buffer.priority_sum, buffer.counts.applied) == (2, 0)


@pytest.mark.parametrize(
    ("items", "complaint"),
    [
        ({}, "holds ['value'], not []"),
        ({"value": torch.zeros(2, dtype=torch.int64), "more": torch.zeros(2)}, "not ['more', 'value']"),
        ({"value": torch.zeros(2)}, "value must be torch.int64 of shape (2,), not torch.float32"),
        ({"value": torch.zeros(2, 1, dtype=torch.int64)}, "of shape (2, 1)"),
    ],
    ids=["none", "more", "type", "shape"],
)
def test_items_of_another_form_are_refused(items: dict[str, Tensor], complaint: str) -> None:
    buffer = buffer_of(1)
    with pytest.raises(ValueError, match="value") as caught:
        buffer.add(items, torch.ones(2))
    assert complaint in str(caught.value)
    assert buffer.counts.inserted == 1
    buffer.check_valid()


def test_each_item_needs_one_priority() -> None:
    buffer = buffer_of(1)
    with pytest.raises(ValueError, match="each item needs one priority: got 2 priorities for 3 items"):
        buffer.add({"value": torch.zeros(3, dtype=torch.int64)}, torch.ones(2))
    assert buffer.counts.inserted == 1
    buffer.check_valid()


def test_new_items_have_the_largest_priority_so_far() -> None:
    for priorities, expected in (((), 2.0), ((0.5,), 2.5), ((3.0, 2.0), 11.0)):
        buffer = buffer_of(*priorities)
        buffer.add({"value": torch.zeros(2, dtype=torch.int64)}, None)
        assert buffer.priority_sum == expected


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="priorities must be"):
        buffer_of().add({"value": torch.zeros(1, dtype=torch.int64)}, torch.ones(1, 1))
    with pytest.raises(ValueError, match="capacity of a replay must be at least 1"):
        buffer_of(capacity=0)
    with pytest.raises(ValueError, match="at least one item must be drawn"):
        buffer_of(1).sample(0)


def test_what_was_drawn_does_not_change_any_more() -> None:
    buffer = ReplayBuffer(4, COLUMNS, kind="Uniform", priority_exponent=0, seed=0)
    buffer.add(items := random_items(COLUMNS, 4, 0), torch.ones(4))
    draw = buffer.sample(4)
    copies = {name: rows.clone() for name, rows in draw.items.items()}
    buffer.add(random_items(COLUMNS, 4, 1), torch.ones(4))
    for name, rows in draw.items.items():
        assert torch.equal(rows, copies[name])
        assert torch.equal(rows, items[name])
        assert rows.dtype == COLUMNS[name].dtype


def test_seeds_decide_draws() -> None:
    draws = [buffer_of(*range(1, 9), seed=seed).sample(50) for seed in (1, 1, 2)]
    assert same(draws[0], draws[1])
    assert not same(draws[0], draws[2])
