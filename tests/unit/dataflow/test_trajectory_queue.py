"""Every unroll is accounted for, whatever the order in which things happen."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from rltraining_trainer.dataflow import Source, TrajectoryQueue


class Producer:
    """Pushes numbered items of one incarnation, and counts how often it was told to go on."""

    def __init__(self, name: str = "sampler-0", incarnation: str = "a") -> None:
        self.name, self.incarnation = name, incarnation
        self.sequence = 0
        self.accepted = 0

    def push(self, queue: TrajectoryQueue[str], repeat: bool = False) -> bool:
        """Whether it was accepted at once."""
        self.sequence += not repeat
        before = self.accepted
        queue.push(
            f"{self.name}/{self.sequence}", Source(self.name, self.incarnation, self.sequence), self._go_on
        )
        return self.accepted > before

    def _go_on(self) -> None:
        self.accepted += 1


def counts(queue: TrajectoryQueue[str]) -> tuple[int, int, int, int]:
    queue.check_valid()
    return queue.pushed, queue.used, queue.dropped, len(queue)


def test_it_is_first_in_first_out() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(2)
    producer = Producer()
    producer.push(queue)
    producer.push(queue)

    assert [queue.get(0), queue.get(0), queue.get(0)] == ["sampler-0/1", "sampler-0/2", None]
    assert counts(queue) == (2, 2, 0, 0)


def test_a_full_queue_holds_the_producer_back_until_there_is_room() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(1)
    producer = Producer()

    assert producer.push(queue)
    assert not producer.push(queue)
    assert counts(queue) == (2, 0, 0, 2)

    assert queue.get(0) == "sampler-0/1"
    assert producer.accepted == 2
    assert counts(queue) == (2, 1, 0, 1)


def test_without_room_a_producer_goes_on_when_its_unroll_has_been_used() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(0)
    producer = Producer()

    assert not producer.push(queue)
    assert queue.get(0) == "sampler-0/1"
    assert producer.accepted == 0, "it is being used"
    assert not producer.push(queue, repeat=True), "also for who asks again meanwhile"
    assert queue.get(0) is None
    assert producer.accepted == 2
    assert counts(queue) == (1, 1, 0, 0)


def test_who_waits_for_the_use_of_its_unroll_is_told_when_the_queue_closes() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(0)
    producer = Producer()
    producer.push(queue)
    queue.get(0)
    queue.close()
    assert producer.accepted == 1


def test_a_repeated_push_is_taken_once_and_accepted_again() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(1)
    producer = Producer()
    producer.push(queue)

    assert producer.push(queue, repeat=True)
    assert counts(queue) == (1, 0, 0, 1)
    queue.get(0)
    assert producer.push(queue, repeat=True)
    assert counts(queue) == (1, 1, 0, 0)


def test_a_repeated_push_that_waits_is_accepted_with_the_first() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(1)
    producer = Producer()
    producer.push(queue)
    producer.push(queue)

    assert not producer.push(queue, repeat=True)
    queue.get(0)
    assert producer.accepted == 3
    assert counts(queue) == (2, 1, 0, 1)


def test_a_new_incarnation_begins_its_sequence_anew() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(4)
    Producer(incarnation="a").push(queue)
    Producer(incarnation="b").push(queue)

    assert len(queue) == 2


def test_closing_drops_what_is_queued_and_lets_everybody_go_on() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(1)
    producer = Producer()
    producer.push(queue)
    producer.push(queue)
    queue.close()
    queue.close()

    assert producer.accepted == 2
    assert counts(queue) == (2, 0, 2, 0)
    assert queue.get() is None
    assert producer.push(queue)
    assert counts(queue) == (3, 0, 3, 0)


def test_closing_wakes_a_consumer() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(1)
    got: list[str | None] = []
    consumer = threading.Thread(target=lambda: got.append(queue.get(10)))
    consumer.start()
    queue.close()
    consumer.join(5)

    assert got == [None]


def test_a_push_wakes_a_consumer_and_a_silence_ends_in_time() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(1)
    threading.Timer(0.02, Producer().push, [queue]).start()

    assert queue.get(10) == "sampler-0/1"
    began = time.monotonic()
    assert queue.get(0.05) is None
    assert 0.04 < time.monotonic() - began < 2


def test_what_a_lost_process_had_queued_counts_as_dropped() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(2)
    producer = Producer()
    for _ in range(4):
        producer.push(queue)
    queue.get(0)
    restored: TrajectoryQueue[str] = TrajectoryQueue(2)
    restored.set_state(queue.get_state())

    assert counts(restored) == (4, 1, 3, 0)
    assert producer.push(restored, repeat=True)
    assert counts(restored) == (4, 1, 3, 0)
    producer.push(restored)
    assert counts(restored) == (5, 1, 3, 1)


def test_a_queue_in_use_cannot_be_restored() -> None:
    queue: TrajectoryQueue[str] = TrajectoryQueue(2)
    Producer().push(queue)

    with pytest.raises(ValueError, match="cannot be restored: 1 unrolls came already"):
        queue.set_state(TrajectoryQueue(1).get_state())


@pytest.mark.parametrize("capacity", [-1, -2])
def test_a_queue_needs_room(capacity: int) -> None:
    with pytest.raises(ValueError, match="must be at least 0"):
        TrajectoryQueue(capacity)


class AnyOrder(RuleBasedStateMachine):
    """Against a naive twin: a list of sources, of which the first `capacity` have been accepted."""

    CAPACITY = 2

    def __init__(self) -> None:
        super().__init__()
        self.queue: TrajectoryQueue[str] = TrajectoryQueue(self.CAPACITY)
        self.producers = [Producer(f"sampler-{index}") for index in range(3)]
        self.twin: list[str] = []
        self.pushed = self.used = self.dropped = 0
        self.closed = False

    @rule(index=st.integers(0, 2))
    def push(self, index: int) -> None:
        accepted = self.producers[index].push(self.queue)
        self.pushed += 1
        if self.closed:
            self.dropped += 1
        else:
            self.twin.append(f"sampler-{index}/{self.producers[index].sequence}")
        assert accepted == (self.closed or len(self.twin) <= self.CAPACITY)

    @rule(index=st.integers(0, 2))
    def repeat(self, index: int) -> None:
        producer = self.producers[index]
        if producer.sequence:
            waits = f"{producer.name}/{producer.sequence}" in self.twin[self.CAPACITY :]
            assert producer.push(self.queue, repeat=True) == (not waits)

    @rule()
    def get(self) -> None:
        expected = self.twin.pop(0) if self.twin else None
        self.used += expected is not None
        assert self.queue.get(0) == expected

    @rule()
    def restore(self) -> None:
        if not self.closed:
            state = self.queue.get_state()
            self.queue = TrajectoryQueue(self.CAPACITY)
            self.queue.set_state(state)
            self.dropped += len(self.twin)
            self.twin = []

    @rule()
    def close(self) -> None:
        self.queue.close()
        self.closed = True
        self.dropped += len(self.twin)
        self.twin = []

    @invariant()
    def everything_is_accounted_for(self) -> None:
        assert counts(self.queue) == (self.pushed, self.used, self.dropped, len(self.twin))


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=25)
