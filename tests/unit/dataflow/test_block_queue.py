"""Blocks are dealt to the present samplers, and the first rollout of each block counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from rltraining_trainer.dataflow.block_queue import LONGEST_SECONDS, BlockQueue, BlockRollout, Work

B, T = 2, 3
DEADLINE = 2.0
UNROLL: dict[str, Any] = {
    "valid": torch.ones(T, B, dtype=torch.bool),
    "action": torch.arange(T * B).reshape(T, B),
    "observation": torch.zeros(T + 1, B, 4),
    "first": torch.zeros(T + 1, B, dtype=torch.bool),
}


class Samplers:
    """Samplers that ask a queue with 4 blocks, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.names = ["a", "b", "c"]
        self.queue = BlockQueue(4, lambda: self.names, DEADLINE, lambda: self.now)
        self.work: dict[str, list[Work]] = {}
        self.held: dict[str, dict[int, int]] = {}

    def ask(
        self, name: str, blocks: Sequence[int] = (), update: int | None = None, *, working: bool = False
    ) -> None:
        """Sends rollouts of these blocks, for this update by default. The sampler then has the blocks."""
        update = self.queue.update if update is None else update
        held = self.held.setdefault(name, {})
        held |= dict.fromkeys(blocks, update + 1)
        rollouts = [BlockRollout(block, update, UNROLL, {"from": name}) for block in blocks]
        reply = lambda work: self.work.__setitem__(name, list(work))  # noqa: E731
        self.queue.ask(name, rollouts, held, reply, working=working)

    def ask_ahead(self, name: str, blocks: Sequence[int]) -> None:
        """Asks for work of a sampler that still makes this update's rollouts of these blocks."""
        self.held[name] = dict.fromkeys(blocks, self.queue.update + 1)
        self.ask(name, working=True)

    def dealt(self) -> dict[str, list[int]]:
        """Returns the blocks that each sampler received since the last call."""
        work, self.work = self.work, {}
        return {name: [one.block for one in found] for name, found in work.items()}

    def ready(self) -> bool:
        return self.queue.is_ready(0.0)

    def sources(self) -> list[str]:
        """Returns which sampler made each of the update's rollouts."""
        return [rollout.after["from"] for rollout in self.queue.rollouts()]

    def release(self, lag: int = 0) -> None:
        """Lets samplers make the rollouts of this update, and of ``lag`` updates after it."""
        self.queue.release(self.queue.update + lag)

    def update(self) -> None:
        """Makes an update in which samplers a and b each make their rollouts."""
        self.ask("a", [0, 2])
        self.ask("b", [1, 3])
        assert self.ready()
        self.queue.advance()
        self.release()


@pytest.fixture
def samplers() -> Samplers:
    """Samplers a and b, which have blocks 0, 2 and 1, 3. Nothing is dealt before the first release."""
    samplers = Samplers()
    samplers.ask("a")
    samplers.ask("b")
    assert not samplers.ready()
    assert samplers.dealt() == {}
    samplers.release()
    assert samplers.dealt() == {"a": [0, 2], "b": [1, 3]}
    return samplers


def test_samplers_keep_their_blocks_and_receive_the_state_of_others(samplers: Samplers) -> None:
    samplers.update()
    assert all(work.state is None for found in samplers.work.values() for work in found)
    assert samplers.dealt() == {"a": [0, 2], "b": [1, 3]}
    samplers.ask("c")
    samplers.update()
    (moved,) = samplers.work["c"]
    assert moved.update == 2
    assert moved.state is not None
    assert moved.state.ages.tolist() == [2 * T] * B
    assert len(moved.state.actions) == 2 * T
    assert samplers.dealt() == {"a": [0, 3], "b": [1], "c": [2]}
    assert samplers.queue.moved == 2


def test_parameters_of_the_next_update_come_first(samplers: Samplers) -> None:
    samplers.ask("a", [0, 2])
    samplers.ask("b", [1, 3])
    samplers.queue.advance()
    samplers.ask("c")
    assert samplers.dealt() == {}
    samplers.release()
    assert samplers.dealt() == {"a": [0, 3], "b": [1], "c": [2]}


def test_a_sampler_that_has_delivered_continues_with_the_released_updates(samplers: Samplers) -> None:
    samplers.release(lag=1)
    samplers.ask("a", [0, 2])
    assert [(one.block, one.update, one.state) for one in samplers.work["a"]] == [(0, 1, None), (2, 1, None)]
    samplers.dealt()
    samplers.ask("a", [0, 2], update=1)
    assert samplers.dealt() == {}, "not released"
    assert not samplers.ready()
    assert samplers.queue.counts() == {"pushed": 4, "used": 0, "dropped": 0, "queued": 4}

    # The other sampler has new environments, as after a restart, and delivers.
    samplers.ask("b", [1, 3])
    samplers.held.clear()
    samplers.ask("b")
    assert [(one.block, one.update) for one in samplers.work["b"]] == [(1, 1), (3, 1)]
    assert all(one.state is not None and one.state.ages.tolist() == [T] * B for one in samplers.work["b"])
    samplers.dealt()
    assert samplers.ready()
    samplers.queue.advance()
    assert samplers.queue.counts() == {"pushed": 6, "used": 4, "dropped": 0, "queued": 2}
    samplers.ask("b", [1, 3])
    assert samplers.ready()
    assert samplers.sources() == ["a", "b", "a", "b"]
    samplers.release(lag=1)
    assert samplers.dealt() == {"a": [0, 2], "b": [1, 3]}


def test_overdue_blocks_come_before_later_updates(samplers: Samplers) -> None:
    samplers.ask("a", [0, 2])
    samplers.now = DEADLINE
    samplers.release(lag=1)
    assert samplers.dealt() == {"a": [1, 3]}
    samplers.ask("a", [1, 3])
    assert samplers.ready()
    assert samplers.dealt() == {"a": [0, 1, 2, 3]}, "b is left out until it asks"


def test_a_sampler_asks_for_the_next_work_before_it_delivers(samplers: Samplers) -> None:
    samplers.ask_ahead("a", [0, 2])
    assert samplers.dealt() == {}
    samplers.release(lag=1)
    assert [(one.block, one.update, one.state) for one in samplers.work["a"]] == [(0, 1, None), (2, 1, None)]
    samplers.dealt()

    # It delivers, and its next request waits until the other one has delivered too.
    samplers.queue.deliver("a", [BlockRollout(block, 0, UNROLL, {}) for block in (0, 2)])
    samplers.held["a"] = {0: 2, 2: 2}
    samplers.ask("a", working=True)
    samplers.ask("b", [1, 3])
    assert samplers.ready()
    samplers.queue.advance()
    samplers.dealt()
    samplers.queue.deliver("a", [BlockRollout(block, 1, UNROLL, {}) for block in (0, 2)])
    samplers.release(lag=1)
    assert samplers.dealt() == {"a": [0, 2]}
    assert samplers.queue.counts() == {"pushed": 6, "used": 4, "dropped": 0, "queued": 2}
    assert samplers.queue.moved == 0


def test_work_is_lost_if_the_sampler_does_not_do_it_any_more(samplers: Samplers) -> None:
    samplers.ask_ahead("a", [0])
    assert samplers.dealt() == {"a": [2]}


def test_a_sampler_with_work_receives_no_overdue_blocks_before_it_has_delivered(samplers: Samplers) -> None:
    samplers.ask_ahead("a", [0, 2])
    samplers.now = DEADLINE
    assert not samplers.ready()
    assert samplers.dealt() == {}
    samplers.queue.deliver("a", [BlockRollout(block, 0, UNROLL, {}) for block in (0, 2)])
    samplers.now = 4 * DEADLINE
    assert not samplers.ready()
    assert samplers.dealt() == {"a": [1, 3]}


def test_all_work_of_a_late_sampler_is_dealt_again(samplers: Samplers) -> None:
    samplers.ask_ahead("b", [1, 3])
    samplers.ask("a", [0, 2])
    samplers.release(lag=1)
    assert samplers.dealt() == {"a": [0, 2], "b": [1, 3]}
    samplers.now = DEADLINE
    samplers.ask("a", [0, 2], update=1)
    assert samplers.dealt() == {"a": [1, 3]}
    samplers.ask("a", [1, 3])
    assert [(one.block, one.update) for one in samplers.work["a"]] == [(1, 1), (3, 1)]


def test_rollouts_may_overtake_each_other(samplers: Samplers) -> None:
    samplers.release(lag=1)
    samplers.ask("b", [1, 3], update=1)
    samplers.ask("b", [1, 3], update=0)
    assert samplers.queue.counts() == {"pushed": 4, "used": 0, "dropped": 0, "queued": 4}
    samplers.ask("a", [0, 2])
    assert samplers.ready()


def test_work_of_a_sampler_that_waits_for_work_was_lost(samplers: Samplers) -> None:
    """A repeated request of a sampler that made the rollout for an earlier incarnation of the learner."""
    samplers.held["b"] = {1: 1, 3: 1}
    samplers.ask("b")
    assert samplers.dealt() == {"b": [1, 3]}


def test_the_time_of_work_begins_when_the_work_before_is_delivered(samplers: Samplers) -> None:
    samplers.ask_ahead("b", [1, 3])
    samplers.release(lag=1)
    for update in range(2):
        samplers.now += 1.0
        samplers.ask("a", [0, 2], update)
    samplers.now = 2 * DEADLINE - 0.1  # before b is late
    samplers.queue.deliver("b", [BlockRollout(block, 0, UNROLL, {}) for block in (1, 3)])
    assert samplers.ready()
    samplers.queue.advance()
    samplers.dealt()
    samplers.now += 2 * DEADLINE - 0.1  # a has made its rollouts in 1 s
    assert not samplers.ready()
    assert samplers.dealt() == {}
    samplers.now += 0.2
    assert not samplers.ready()
    assert samplers.dealt() == {"a": [1, 3]}


def test_a_waiting_sampler_receives_overdue_blocks_and_the_first_rollout_counts(samplers: Samplers) -> None:
    samplers.ask("a", [0, 2])
    samplers.now = DEADLINE - 0.1
    assert not samplers.ready()
    assert samplers.dealt() == {}
    samplers.now = DEADLINE
    assert not samplers.ready()
    assert samplers.dealt() == {"a": [1, 3]}
    samplers.ask("a", [1, 3])
    samplers.ask("b", [1, 3])
    assert samplers.ready()
    assert samplers.sources() == ["a"] * 4
    assert samplers.queue.counts() == {"pushed": 6, "used": 0, "dropped": 2, "queued": 4}


def test_blocks_of_a_sampler_that_dies_with_work_of_the_last_update_are_overdue_too(
    samplers: Samplers,
) -> None:
    # b is slow and a receives its blocks, but b is first.
    samplers.ask("a", [0, 2])
    samplers.now = DEADLINE
    assert not samplers.ready()
    samplers.dealt()
    samplers.ask("b", [1, 3])
    assert samplers.ready()
    samplers.queue.advance()
    samplers.release()
    assert samplers.dealt() == {"b": [1, 3]}

    # a dies before it asks again.
    samplers.ask("b", [1, 3])
    samplers.now += DEADLINE
    assert not samplers.ready()
    assert samplers.dealt() == {"b": [0, 2]}


def test_samplers_that_were_late_are_left_out_until_they_ask(samplers: Samplers) -> None:
    samplers.ask("a", [0, 2])
    samplers.now = DEADLINE
    assert not samplers.ready()
    samplers.ask("a", [1, 3])
    for dealt in ({"a": [0, 1, 2, 3]}, {"a": [0, 2], "b": [1, 3]}):
        samplers.work.clear()
        assert samplers.ready()
        samplers.queue.advance()
        samplers.release()
        assert samplers.dealt() == dealt
        samplers.ask("a", dealt["a"])
        samplers.ask("b", dealt.get("b", []))


def test_the_time_of_the_quickest_sampler_extends_the_deadline(samplers: Samplers) -> None:
    samplers.now = 10.0
    samplers.ask("a", [0, 2])
    for now, overdue in ((10.0 + DEADLINE + 9.9, False), (20.0 + DEADLINE, True)):
        samplers.now = now
        assert not samplers.ready()
        assert bool(samplers.dealt()) == overdue


def test_a_restarted_sampler_receives_its_blocks_at_once(samplers: Samplers) -> None:
    samplers.held.clear()
    samplers.ask("b")
    assert samplers.dealt() == {"b": [1, 3]}


def test_removed_samplers_receive_nothing(samplers: Samplers) -> None:
    samplers.names = ["a"]
    samplers.update()
    assert samplers.dealt() == {"a": [0, 1, 2, 3]}


def test_rollouts_of_another_update_are_dropped(samplers: Samplers) -> None:
    samplers.queue.ask("a", [BlockRollout(0, 1, UNROLL, {})], {}, lambda work: None)
    assert samplers.queue.counts() == {"pushed": 1, "used": 0, "dropped": 1, "queued": 0}


def test_a_long_wait_is_answered_without_work(samplers: Samplers) -> None:
    samplers.ask("c")
    samplers.now = LONGEST_SECONDS
    samplers.names = []
    assert not samplers.ready()
    assert samplers.dealt() == {"c": []}


def test_a_resumed_queue_repeats_the_update(samplers: Samplers) -> None:
    samplers.update()
    samplers.dealt()
    samplers.ask("a", [0, 2])
    state = samplers.queue.get_state()
    assert {name: state[name] for name in ("update", "pushed", "used", "dropped")} == {
        "update": 1,
        "pushed": 6,
        "used": 4,
        "dropped": 2,
    }
    resumed = Samplers()
    resumed.queue.set_state(state)
    resumed.held["a"] = {0: 1, 1: 2, 2: 0}
    resumed.release()
    resumed.ask("a")
    assert [work.state is None for work in resumed.work["a"]] == [True, False, False, False]
    assert [work.update for work in resumed.work["a"]] == [1] * 4
    with pytest.raises(ValueError, match="it has 4 blocks, not 3"):
        BlockQueue(3, lambda: [], DEADLINE).set_state(state)


def test_the_end_answers_everybody(samplers: Samplers) -> None:
    samplers.ask("c")
    samplers.queue.close()
    samplers.ask("b")
    assert samplers.dealt() == {"b": [], "c": []}
