"""Chooses the number of items under way at a time: the smallest number that keeps the learner busy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LEAST = 4
"""Smallest limit, in batches. Two samplers reach it, each with an item in transit and one in the making."""
PERIOD_SECONDS = 1.0
"""Shortest period over which the rate of items is measured, after items of the previous limit are used up."""
PERIOD_ITEMS = 4
"""Shortest such period in items, as a multiple of the limit."""
BUSY = 0.1
"""Share of time in which the learner waits for batches, below which it is busy enough."""
GAIN = 1.1
"""Factor by which the rate of items must rise when the limit is doubled, or half of the gain of a busy learner if that is less.
Otherwise the limit is restored, because the samplers share the resource that limits them, such as the cores of one machine."""
PAUSE_PERIODS = 20
"""Periods after which a limit that did not raise the rate is tried again."""


@dataclass
class _Period:
    since: float
    """Seconds."""
    skip: int
    """Items that were under way when the limit was set. They are not counted."""
    used: int = 0
    batches: int = 0
    waited: float = 0.0
    """Seconds for which the learner waited."""
    short: int = 0
    """Batches after which samplers lacked credits."""


class CreditLimit:
    """Doubles the limit while that makes the learner faster, and lowers it while the learner is busy.

    Args:
        most: largest limit, in items.
        batch: items of one batch.
        now: seconds.
    """

    def __init__(self, most: int, batch: int, now: float) -> None:
        self.most = max(1, most)
        self.items = self._least = min(self.most, LEAST * batch)
        """The limit."""
        # The limit before a trial, and the rate that the trial has to reach.
        self._before: tuple[int, float] | None = None
        self._pause = 0  # periods until the next trial
        self._period = _Period(now, 2 * self.items)

    def on_batch(self, items: int, waited: float, short: bool, now: float) -> None:
        """Adapts the limit after a batch.

        Args:
            items: number of items of this batch.
            waited: seconds for which the learner waited for the batch.
            short: whether samplers lack credits.
            now: seconds.
        """
        period = self._period
        if period.skip > 0:
            period.skip -= items
            period.since = now
            return
        period.used += items
        period.batches += 1
        period.waited += waited
        period.short += short
        seconds = now - period.since
        if seconds >= PERIOD_SECONDS and period.used >= PERIOD_ITEMS * self.items:
            self._adapt(period, seconds)
            self._period = _Period(now, 2 * self.items)

    def _adapt(self, period: _Period, seconds: float) -> None:
        """Chooses the limit of the next period."""
        rate = period.used / seconds
        self._pause = max(0, self._pause - 1)
        # Judge a trial.
        if self._before is not None:
            (items, least), self._before = self._before, None
            if rate < least:
                self.items, self._pause = items, PAUSE_PERIODS
                return
        # A busy learner needs fewer items. If it waits while samplers lack credits, try twice as many.
        if period.waited < BUSY * seconds:
            self.items = max(self._least, self.items - max(1, self.items // 8))
        elif 2 * period.short > period.batches and self.items < self.most and not self._pause:
            most = seconds / max(seconds - period.waited, 1e-9)  # gain of a learner that never waits
            self._before = (self.items, rate * min(GAIN, (1 + most) / 2))
            self.items = min(self.most, 2 * self.items)


class CreditControl:
    """Adapts the limit of a queue to the time for which its learner waits for batches.

    Args:
        set_limit: sets the limit of the queue, in items.
        clock: returns seconds.
    """

    def __init__(self, set_limit: Callable[[int], None], clock: Callable[[], float]) -> None:
        self._set_limit, self._clock = set_limit, clock
        self._limit: CreditLimit | None = None
        self._batch = 0
        self._requested: float | None = None  # time when the learner started to wait

    def set_batch(self, batch: int, most: int) -> None:
        """Sets the items of a batch, and the largest limit for them. A new batch size starts with the smallest limit."""
        if self._limit is None or batch != self._batch:
            self._limit, self._batch = CreditLimit(most, batch, self._clock()), batch
            self._set_limit(self._limit.items)

    def wait(self) -> None:
        """Records that the learner starts to wait for a batch, unless it is already waiting."""
        if self._requested is None:
            self._requested = self._clock()

    def on_batch(self, items: int, short: bool) -> None:
        """Adapts the limit after a batch. ``short``: samplers lack credits."""
        if self._limit is not None and self._requested is not None:
            now = self._clock()
            self._limit.on_batch(items, now - self._requested, short, now)
            self._set_limit(self._limit.items)
        self._requested = None
