"""Deals blocks of environments to samplers, and collects one rollout of each block for an update."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rltraining_trainer.dataflow.block_state import BlockState, following

LONGEST_SECONDS = 20.0
"""A sampler that waits for longer receives an answer without work, and asks again."""
PATIENCE = 2.0
"""A block is overdue after this multiple of the quickest sampler's time, beyond the deadline."""


@dataclass(frozen=True)
class Work:
    """A rollout that a sampler is asked for."""

    block: int
    update: int
    state: BlockState | None
    """None: the sampler has the block already, or the block begins."""


@dataclass(frozen=True)
class BlockRollout:
    """A rollout of a block."""

    block: int
    update: int
    unroll: dict[str, Any]
    after: dict[str, Any]
    """See ``BlockState``."""


Reply = Callable[[list[Work]], None]


class BlockQueue:
    """Thread-safe. A sampler asks for work with the rollouts that it has made, and waits until there is work.

    The present samplers share the blocks. A rollout does not depend on its sampler: if a sampler does not deliver in
    time, its blocks are also dealt to a sampler that waits, and the first rollout of a block counts.

    Args:
        count: number of blocks.
        samplers: returns the names of all samplers, dead or alive.
        deadline: seconds after which a sampler that waits may receive the blocks of another one.
        clock: returns seconds.
    """

    def __init__(
        self,
        count: int,
        samplers: Callable[[], Sequence[str]],
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.update = 0
        """Number of complete updates."""
        self.moved = 0
        """Number of times that a block was sent to another sampler."""
        self._samplers, self._deadline, self._clock = samplers, deadline, clock
        self._changed = threading.Condition()
        self._states: list[BlockState | None] = [None] * count
        self._rollouts: dict[int, BlockRollout] = {}
        # The newest sampler of each block that was dealt in this update, and the time.
        self._dealt: dict[int, tuple[str, float]] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._present: set[str] = set()
        self._open = self._closed = False
        self._opened = 0.0  # when this update began
        # Seconds of the quickest sampler in the last update and in this one. None: not known yet.
        self._quickest: tuple[float | None, float | None] = (None, None)
        self._pushed = self._used = self._dropped = 0

    def ask(
        self, sampler: str, rollouts: Sequence[BlockRollout], held: Mapping[int, int], reply: Reply
    ) -> None:
        """Adds rollouts, and replies when there is work.

        Args:
            held: the blocks that the sampler has, with the update that their next rollout is for.
        """
        with self._changed:
            now = self._clock()
            # Count each block's first rollout.
            for rollout in rollouts:
                self._pushed += 1
                is_block = 0 <= rollout.block < len(self._states)
                if rollout.update != self.update or rollout.block in self._rollouts or not is_block:
                    self._dropped += 1
                    continue
                self._rollouts[rollout.block] = rollout
                dealt = self._dealt.get(rollout.block)
                if dealt is not None and dealt[0] == sampler:
                    last, quickest = self._quickest
                    seconds = now - dealt[1]
                    self._quickest = last, seconds if quickest is None else min(quickest, seconds)
            # Blocks that it was asked for and did not deliver are lost.
            for block in [block for block, (other, _) in self._dealt.items() if other == sampler]:
                if block not in self._rollouts:
                    del self._dealt[block]
            self._present.add(sampler)
            earlier = self._waiting.get(sampler)
            self._waiting[sampler] = _Waiting(reply, dict(held), now)
            self._changed.notify_all()
        if earlier is not None:
            earlier.reply([])
        self._reply()

    def is_ready(self, timeout: float) -> bool:
        """Returns whether all rollouts of this update are there, after at most ``timeout`` seconds."""
        until = self._clock() + timeout
        while True:
            self._reply()
            with self._changed:
                ready = self._open and len(self._rollouts) == len(self._states)
                left = until - self._clock()
                if ready or self._closed or left <= 0.0:
                    return ready
                self._changed.wait(min(left, self._deadline / 4))

    def rollouts(self) -> list[BlockRollout]:
        """Returns the rollouts of this update in the order of blocks."""
        with self._changed:
            return [self._rollouts[block] for block in range(len(self._states))]

    def advance(self) -> None:
        """Ends the update with its rollouts. The next one begins with ``release``, when there are newer parameters."""
        with self._changed:
            used = [self._rollouts[block] for block in range(len(self._states))]
            self._states = [
                following(state, rollout.unroll, rollout.after)
                for state, rollout in zip(self._states, used, strict=True)
            ]
            self._used += len(used)
            self._rollouts, self._dealt, self._open = {}, {}, False
            last, quickest = self._quickest
            self._quickest = last if quickest is None else quickest, None
            self.update += 1

    def release(self) -> None:
        """Begins an update, unless it has begun."""
        with self._changed:
            if not self._open:
                self._open, self._opened = True, self._clock()
        self._reply()

    def close(self) -> None:
        """Replies to all samplers immediately, from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._reply()

    def counts(self) -> dict[str, int]:
        """Returns the numbers of rollouts: pushed = used + dropped + queued."""
        with self._changed:
            queued = len(self._rollouts)
            return {"pushed": self._pushed, "used": self._used, "dropped": self._dropped, "queued": queued}

    def get_state(self) -> dict[str, Any]:
        """Returns the state at the beginning of this update. Its rollouts are made again."""
        with self._changed:
            blocks = [None if state is None else state.to_payload() for state in self._states]
            dropped = self._dropped + len(self._rollouts)
            counts = {"pushed": self._pushed, "used": self._used, "dropped": dropped}
            return {"update": self.update, "blocks": blocks, **counts}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state. Raises ValueError if it has another number of blocks."""
        blocks = state["blocks"]
        with self._changed:
            if len(blocks) != len(self._states):
                raise ValueError(f"it has {len(blocks)} blocks, not {len(self._states)}")
            self._states = [None if block is None else BlockState.from_payload(block) for block in blocks]
            self.update = state["update"]
            self._pushed, self._used, self._dropped = (state[name] for name in ("pushed", "used", "dropped"))
            self._rollouts, self._dealt, self._open = {}, {}, False

    def _reply(self) -> None:
        """Replies to the samplers for which there is work."""
        replies: list[tuple[Reply, list[Work]]] = []
        with self._changed:
            now = self._clock()
            work = self._deal(now) if self._open and not self._closed else {}
            for sampler, waiting in list(self._waiting.items()):
                found = work.get(sampler, [])
                if found or self._closed or now >= waiting.since + LONGEST_SECONDS:
                    del self._waiting[sampler]
                    replies.append(
                        (waiting.reply, [self._work(block, sampler, waiting, now) for block in found])
                    )
        for reply, items in replies:
            reply(items)

    def _deal(self, now: float) -> dict[str, list[int]]:
        """Returns the blocks for samplers that wait."""
        # Share the blocks among the present samplers, always in the same way so that they keep their blocks.
        present = [name for name in self._samplers() if name in self._present]
        if not present:
            return {}
        work: dict[str, list[int]] = {}
        # The sampler of each other block, and since when it has it.
        pending: dict[int, tuple[str, float]] = {}
        for block in range(len(self._states)):
            owner = present[block % len(present)]
            if block in self._rollouts:
                continue
            if block in self._dealt or owner not in self._waiting:
                pending[block] = self._dealt.get(block, (owner, self._opened))
            else:
                work.setdefault(owner, []).append(block)
        # Deal overdue blocks to samplers that wait, and leave their samplers out until they ask.
        waiting = [name for name in present if name in self._waiting and name not in work]
        if waiting:
            known = [seconds for seconds in self._quickest if seconds is not None]
            patience = self._deadline + PATIENCE * min(known, default=0.0)
            overdue = [block for block, (_, since) in pending.items() if now >= since + patience]
            for number, block in enumerate(overdue):
                self._present.discard(pending[block][0])
                work.setdefault(waiting[number % len(waiting)], []).append(block)
        return work

    def _work(self, block: int, sampler: str, waiting: _Waiting, now: float) -> Work:
        """Notes that a block is dealt to a sampler."""
        self._dealt[block] = sampler, now
        if waiting.held.get(block) == self.update:
            return Work(block, self.update, None)
        state = self._states[block]
        self.moved += state is not None
        return Work(block, self.update, state)


@dataclass(frozen=True)
class _Waiting:
    """A sampler that waits for work."""

    reply: Reply
    held: dict[int, int]
    since: float
