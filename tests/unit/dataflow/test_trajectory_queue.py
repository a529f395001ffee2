"""Every unroll is counted once and every producer continues, whatever the order of events."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from rltraining_trainer.dataflow import Source, Trajectory, TrajectoryQueue
from soak import SOAK


class Producer:
    """Pushes numbered items of one incarnation, and counts the answers that let it continue."""

    def __init__(self, name: str = "sampler-0", incarnation: int = 0) -> None:
        self.source = Source(name, str(incarnation), 0)
        self.accepted = 0

    def push(self, queue: TrajectoryQueue, repeat: bool = False) -> Source:
        """Pushes the next item, or repeats the last one. Returns its source."""
        if not repeat:
            self.source = self.source._replace(sequence=self.source.sequence + 1)
        queue.push(Trajectory(self.source, 0, "an unroll"), self._go_on)
        return self.source

    def _go_on(self, credit: bool) -> None:
        assert credit, "there is no limit"
        self.accepted += 1


def got_from(queue: TrajectoryQueue, timeout: float | None) -> Source | None:
    """Returns the source of the next item."""
    trajectory = queue.get(timeout)
    assert trajectory is None or trajectory.item == "an unroll"
    return trajectory.source if trajectory else None


def test_a_push_and_the_end_of_the_run_wake_the_consumer() -> None:
    queue = TrajectoryQueue(1)
    producer, got = Producer(), list[Source | None]()
    for wake in (lambda: producer.push(queue), queue.close):
        consumer = threading.Thread(target=lambda: got.append(got_from(queue, 60)), daemon=True)
        consumer.start()
        while not queue._changed._waiters:  # type: ignore[attr-defined]
            time.sleep(0.001)
        wake()
        consumer.join(30)

    assert got == [producer.source, None]


def test_a_queue_in_use_cannot_be_restored() -> None:
    queue = TrajectoryQueue(2)
    Producer().push(queue)

    with pytest.raises(ValueError, match="cannot be restored: it has received 1 unrolls"):
        queue.set_state(TrajectoryQueue(1).get_state())


def test_a_queue_needs_room() -> None:
    with pytest.raises(ValueError, match="must be at least 0"):
        TrajectoryQueue(-1)


class AnyOrder(RuleBasedStateMachine):
    """Compares with a naive twin: a list of items, and the number of answers owed for each."""

    @initialize(capacity=st.integers(0, 3))
    def begin(self, capacity: int) -> None:
        self.capacity = capacity
        self.queue = TrajectoryQueue(capacity)
        self.producers = [Producer(f"sampler-{index}") for index in range(3)]
        self.lives = list(self.producers)
        self.twin: list[Source] = []
        self.in_use: list[Source] = []
        """With a capacity of 0, the producer of this item blocks until the item has been used."""
        self.owed: Counter[Source] = Counter()
        self.accepted: Counter[tuple[str, str]] = Counter()
        self.pushed = self.used = self.dropped = 0
        self.closed = False

    def accept(self, *items: Source) -> None:
        for item in items:
            self.accepted[item[:2]] += self.owed.pop(item, 0)

    @rule(index=st.integers(0, 2))
    def push(self, index: int) -> None:
        item = self.producers[index].push(self.queue)
        self.pushed += 1
        self.owed[item] = 1
        if self.closed:
            self.dropped += 1
        else:
            self.twin.append(item)
        if self.closed or len(self.twin) <= self.capacity:
            self.accept(item)

    @rule(index=st.integers(0, 2))
    def repeat(self, index: int) -> None:
        if self.producers[index].source.sequence:
            item = self.producers[index].push(self.queue, repeat=True)
            waits = item in self.owed
            self.owed[item] += 1
            if not waits:
                self.accept(item)

    @rule(index=st.integers(0, 2))
    def restart_a_producer(self, index: int) -> None:
        self.producers[index] = Producer(f"sampler-{index}", len(self.lives))
        self.lives.append(self.producers[index])

    @rule()
    def get(self) -> None:
        self.accept(*self.in_use)
        expected, self.twin = self.twin[:1], self.twin[1:]
        self.used += len(expected)
        self.in_use = [] if self.capacity else expected
        self.accept(*self.twin[: self.capacity])
        assert got_from(self.queue, None if self.closed else 0) == (expected[0] if expected else None)

    @precondition(lambda self: not self.closed)
    @rule()
    def restore(self) -> None:
        """What a lost process had queued is dropped, and its answers are lost."""
        state = self.queue.get_state()
        self.queue = TrajectoryQueue(self.capacity)
        self.queue.set_state(state)
        self.dropped += len(self.twin)
        self.twin, self.in_use = [], []
        self.owed.clear()

    @rule()
    def close(self) -> None:
        self.queue.close()
        self.closed = True
        self.dropped += len(self.twin)
        self.accept(*self.twin, *self.in_use)
        self.twin, self.in_use = [], []

    @invariant()
    def everything_is_counted(self) -> None:
        self.queue.check_valid()
        assert self.queue.counts() == (self.pushed, self.used, self.dropped, len(self.twin), 0)
        for producer in self.lives:
            assert producer.accepted == self.accepted[producer.source[:2]], producer.source


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40 * SOAK, stateful_step_count=25)
