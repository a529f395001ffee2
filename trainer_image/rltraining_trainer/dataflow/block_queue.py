"""Deals blocks of environments to samplers, and collects one rollout of each block for an update."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rltraining_trainer.dataflow.block_state import BlockState, following

LONGEST_SECONDS = 20.0
"""A sampler that waits for longer receives an answer without work, and repeats its request."""
PATIENCE = 2.0
"""A block is overdue after the deadline plus this multiple of the quickest sampler's time."""


@dataclass(frozen=True)
class Work:
    """A rollout that a sampler should make."""

    block: int
    update: int
    state: BlockState | None
    """None: the sampler has the state already, or this is the block's first rollout."""


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
    """Deals blocks to samplers. Thread-safe.

    A sampler requests work and delivers its rollouts. It may request the next work before it delivers.

    The present samplers share the blocks. A rollout does not depend on its sampler: if a sampler does not deliver in
    time, its blocks are also dealt to a sampler that waits, and the first rollout of a block counts. Samplers continue
    with later updates, as far as these are released.

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
        # By update and block: the rollouts, and the last sampler to which the work was dealt, with the time.
        self._rollouts: dict[tuple[int, int], BlockRollout] = {}
        self._dealt: dict[tuple[int, int], tuple[str, float]] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._present: set[str] = set()
        self._closed = False
        self._released = -1  # samplers may make the rollouts of updates up to this one
        self._opened = 0.0  # time from which the rollouts of this update may be made
        # Seconds of the quickest sampler in the last update and in this one. None: unknown so far.
        self._quickest: tuple[float | None, float | None] = (None, None)
        self._pushed = self._used = self._dropped = 0

    def ask(
        self,
        sampler: str,
        rollouts: Sequence[BlockRollout],
        held: Mapping[int, int],
        reply: Reply,
        *,
        working: bool = False,
    ) -> None:
        """Adds rollouts, and replies when there is work.

        Args:
            held: the blocks that the sampler has, with the update of their next rollout. If ``working``, the blocks that
                it will have after its present work.
            working: the sampler is making rollouts, and requests the work after them.
        """
        with self._changed:
            self._add(sampler, rollouts)
            # Any other work that the sampler has received is lost.
            for update, block in self._undelivered(sampler):
                if not working or held.get(block) != update + 1:
                    del self._dealt[update, block]
            earlier = self._waiting.get(sampler)
            self._waiting[sampler] = _Waiting(reply, dict(held), self._clock())
        if earlier is not None:
            earlier.reply([])
        self._reply()

    def deliver(self, sampler: str, rollouts: Sequence[BlockRollout]) -> None:
        """Adds rollouts of a sampler that has already requested its next work."""
        with self._changed:
            self._add(sampler, rollouts)
        self._reply()

    def is_ready(self, timeout: float) -> bool:
        """Returns whether all rollouts of this update have arrived, after at most ``timeout`` seconds."""
        until = self._clock() + timeout
        while True:
            self._reply()
            with self._changed:
                ready = self._released >= self.update and all(key in self._rollouts for key in self._keys())
                left = until - self._clock()
                if ready or self._closed or left <= 0.0:
                    return ready
                self._changed.wait(min(left, self._deadline / 4))

    def rollouts(self) -> list[BlockRollout]:
        """Returns the rollouts of this update in the order of blocks."""
        with self._changed:
            return [self._rollouts[key] for key in self._keys()]

    def advance(self) -> None:
        """Ends the update with its rollouts."""
        with self._changed:
            used = [self._rollouts.pop(key) for key in self._keys()]
            for key in self._keys():
                self._dealt.pop(key, None)
            self._states = [
                following(state, rollout.unroll, rollout.after)
                for state, rollout in zip(self._states, used, strict=True)
            ]
            self._used += len(used)
            last, quickest = self._quickest
            self._quickest = last if quickest is None else quickest, None
            self.update += 1
            self._opened = self._clock()

    def release(self, update: int) -> None:
        """Lets samplers make the rollouts of updates up to this one, for which there are parameters now."""
        with self._changed:
            if self._released < self.update <= update:
                self._opened = self._clock()
            self._released = max(self._released, update)
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
            self._rollouts, self._dealt, self._released = {}, {}, -1

    def _add(self, sampler: str, rollouts: Sequence[BlockRollout]) -> None:
        """Counts rollouts, and keeps the first of each block."""
        now = self._clock()
        for rollout in rollouts:
            self._pushed += 1
            key = rollout.update, rollout.block
            if key in self._rollouts or not self._is_awaited(*key):
                self._dropped += 1
                continue
            self._rollouts[key] = rollout
            dealt = self._dealt.get(key)
            if dealt is not None and dealt[0] == sampler:
                last, quickest = self._quickest
                seconds = now - dealt[1]
                self._quickest = last, seconds if quickest is None else min(quickest, seconds)
        # The sampler starts its remaining work now.
        for key in self._undelivered(sampler):
            self._dealt[key] = sampler, now
        self._present.add(sampler)
        self._changed.notify_all()

    def _undelivered(self, sampler: str) -> list[tuple[int, int]]:
        """Returns the work that the sampler has received and not delivered, by update and block."""
        return [
            key for key, (other, _) in self._dealt.items() if other == sampler and key not in self._rollouts
        ]

    def _keys(self) -> list[tuple[int, int]]:
        """Returns the keys of this update's rollouts."""
        return [(self.update, block) for block in range(len(self._states))]

    def _is_awaited(self, update: int, block: int) -> bool:
        """Returns whether a rollout is for this update or a released one. Messages may overtake each other."""
        return 0 <= block < len(self._states) and self.update <= update <= max(self.update, self._released)

    def _reply(self) -> None:
        """Replies to the samplers for which there is work."""
        replies: list[tuple[Reply, list[Work]]] = []
        with self._changed:
            now = self._clock()
            work = {} if self._closed else self._deal(now)
            for sampler, waiting in list(self._waiting.items()):
                found = work.get(sampler, [])
                if found or self._closed or now >= waiting.since + LONGEST_SECONDS:
                    del self._waiting[sampler]
                    replies.append(
                        (waiting.reply, [self._work(*key, sampler, waiting, now) for key in found])
                    )
        for reply, items in replies:
            reply(items)

    def _deal(self, now: float) -> dict[str, list[tuple[int, int]]]:
        """Returns the work for samplers that wait. Each sampler gets rollouts of one update."""
        # Share the blocks among the present samplers, always in the same way so that they keep their blocks.
        present = [name for name in self._samplers() if name in self._present]
        if not present or self._released < self.update:
            return {}
        owners = [present[block % len(present)] for block in range(len(self._states))]
        work: dict[str, list[tuple[int, int]]] = {}
        # The sampler of each other missing rollout, and the time since which the sampler has had the work.
        pending: dict[tuple[int, int], tuple[str, float]] = {}
        for key, owner in zip(self._keys(), owners, strict=True):
            if key in self._rollouts:
                continue
            if key in self._dealt or owner not in self._waiting:
                pending[key] = self._dealt.get(key, (owner, self._opened))
            else:
                work.setdefault(owner, []).append(key)

        # Deal overdue work to samplers that have nothing to do. Leave the late samplers out until they deliver or ask.
        idle = [name for name in present if name in self._waiting and name not in work]
        idle = [name for name in idle if not self._undelivered(name)]
        if idle:
            known = [seconds for seconds in self._quickest if seconds is not None]
            patience = self._deadline + PATIENCE * min(known, default=0.0)
            overdue = [key for key, (_, since) in pending.items() if now >= since + patience]
            for number, key in enumerate(overdue):
                late = pending[key][0]
                self._present.discard(late)
                for undelivered in self._undelivered(late):
                    del self._dealt[undelivered]
                work.setdefault(idle[number % len(idle)], []).append(key)

        # The other waiting samplers continue with the next updates.
        for update in range(self.update + 1, self._released + 1):
            waiting = [name for name in self._present if name in self._waiting and name not in work]
            for block, owner in enumerate(owners):
                key = update, block
                if owner in waiting and key not in self._dealt and self._can_continue(owner, *key):
                    work.setdefault(owner, []).append(key)
        return work

    def _can_continue(self, sampler: str, update: int, block: int) -> bool:
        """Returns whether this rollout is missing, and the sampler is making the previous one, or that has arrived."""
        if (update, block) in self._rollouts:
            return False
        if (before := (update - 1, block)) in self._rollouts:
            return True
        is_its_work = before in self._dealt and self._dealt[before][0] == sampler
        return is_its_work and self._waiting[sampler].held.get(block) == update

    def _work(self, update: int, block: int, sampler: str, waiting: _Waiting, now: float) -> Work:
        """Records that a rollout is dealt to a sampler. Returns the work."""
        self._dealt[update, block] = sampler, now
        if waiting.held.get(block) == update:
            return Work(block, update, None)
        # The sampler does not have the block in this state. Send the state after the previous rollout.
        state = self._states[block]
        for earlier in range(self.update, update):
            rollout = self._rollouts[earlier, block]
            state = following(state, rollout.unroll, rollout.after)
        self.moved += state is not None
        return Work(block, update, state)


@dataclass(frozen=True)
class _Waiting:
    """A sampler that waits for work."""

    reply: Reply
    held: dict[int, int]
    since: float
