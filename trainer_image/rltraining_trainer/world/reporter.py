"""A sampler's reports to learner 0: counts of steps and episodes, and its replay shard."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor

from rltraining_trainer.dataflow.replay import ReplayShard
from rltraining_trainer.dataflow.reports import Lived
from rltraining_trainer.transport import Stopped, TransportError
from rltraining_trainer.world.members import Member
from rltraining_trainer.world.services import INNER

_LOG = logging.getLogger(__name__)

REPORT = f"{INNER}report"
"""The service of learner 0: see `SamplerReports`."""
PERIOD_SECONDS = 0.1
"""Time between two reports. A shard without a report for 5 s is not sampled."""


class Reporter:
    """A thread that reports to learner 0, one report at a time, each repeated until it is answered.

    Counters are totals of this process, so a lost report loses nothing and a repeated one counts once.
    The answer sets the shard's insertion limit; learner 0 delays it while the shard is at its limit.

    Args:
        learner: learner 0.
        origin: returns this process's incarnation and URL.
        stopping: set when this process should end.
    """

    def __init__(
        self, learner: Member, origin: Callable[[], tuple[str, str]], stopping: threading.Event
    ) -> None:
        self._learner, self._origin, self._stopping = learner, origin, stopping
        self._counters = Lived()
        self._shard: ReplayShard | None = None
        self._wanted = threading.Event()  # a report should be sent now
        self._answered = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        """Starts the thread. The endpoint must have been started."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, after ``stopping`` was set."""
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def count(self, steps: int, episodes: int, returns: Tensor) -> None:
        """Adds to the counters that the next report carries."""
        self._counters.add(steps, episodes, returns)

    def keep(self, shard: ReplayShard) -> None:
        """Reports this shard from now on."""
        self._shard = shard

    def wait_for_room(self, shard: ReplayShard) -> None:
        """Blocks until learner 0 raises the insertion limit of ``shard``. Raises Stopped."""
        if shard.has_room:
            return
        while not self._stopping.is_set():
            with self._answered:
                self._wanted.set()
                if self._answered.wait_for(lambda: shard.has_room, PERIOD_SECONDS):
                    return
        raise Stopped("asked to end")

    def _run(self) -> None:
        sequence = 0
        while not self._stopping.is_set():
            if self._shard is not None or self._counters.news:
                sequence += 1
                try:
                    self._report(sequence)
                except Stopped:
                    return
                except TransportError as error:
                    _LOG.warning("a report was refused: %s", error)
            self._wanted.wait(PERIOD_SECONDS)
            self._wanted.clear()

    def _report(self, sequence: int) -> None:
        incarnation, url = self._origin()
        shard = self._shard
        message: dict[str, Any] = self._counters.take() | {"incarnation": incarnation, "sequence": sequence}
        if shard is not None:
            message["shard"] = shard.describe() | {"url": url}
        answer = self._learner.call(REPORT, message)
        if shard is not None:
            shard.set_limit(None if answer["done"] else answer["limit"])
        with self._answered:
            self._answered.notify_all()
