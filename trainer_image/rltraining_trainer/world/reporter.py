"""The reports of a sampler to learner 0: its counters, and its shard of the replay."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from rltraining_trainer.dataflow import WANTS_NONE, load_flat
from rltraining_trainer.dataflow.reports import StepCounters
from rltraining_trainer.transport import Stopped, TransportError
from rltraining_trainer.world.services import INNER
from rltraining_trainer.world.session import Connections, LearnerSession
from rltraining_trainer.world.shards import LocalShard

_LOG = logging.getLogger(__name__)

PATH = "report"
"""Prefix of the services of learner 0: see `SamplerReports`."""
REPORT = f"{INNER}report"
"""The service for reports of other learners, which call learner 0 as a member."""
PERIOD_SECONDS = 0.1
"""Time between two reports. A shard without a report for 5 s is not sampled."""


class ReportSession(LearnerSession):
    """Receives parameters in one thread. Another thread loads them between two actions."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.newest: deque[tuple[int, Tensor]] = deque(maxlen=1)
        """Version and parameters ``[N]``, received but not loaded."""

    def _load(self, parameters: Tensor) -> None:
        self.newest.append((self.version, parameters))


class Reporter:
    """A thread that sends one report at a time, each repeated until it is answered.

    Counters are totals of this process, so the next report replaces a lost one, and a repeated one counts once.
    The answer sets the shard's insertion limit. Learner 0 delays it while the shard is at its limit.
    """

    def __init__(self, connections: Connections) -> None:
        self.version = WANTS_NONE
        """Version of the loaded parameters."""
        self._connections, self._stopping = connections, connections.context.stopping
        self._session: ReportSession | None = None
        self._parameters: Tensor | None = None
        self._counters = StepCounters()
        self._shard: LocalShard | None = None
        self._refreshes = False  # the next report should request parameters
        self._wanted = threading.Event()  # a report should be sent now
        self._answered = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def attach(self, parameters: Tensor | None) -> None:
        """Connects to learner 0, and loads its parameters into ``parameters`` ``[N]``. Raises Stopped."""
        self._parameters = parameters
        self._session = self._connect(parameters)
        self._session.attach()
        self.load()

    def start(self) -> None:
        """Starts the thread. The endpoint must have been started."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, after the signal to stop was set."""
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def count(self, steps: int, episodes: int, returns: Tensor, moments: Sequence[Tensor] = ()) -> None:
        """Adds to the counters that the next report carries."""
        self._counters.add(steps, episodes, returns, *moments)

    def keep(self, shard: LocalShard) -> None:
        """Reports this shard from now on."""
        self._shard = shard

    def request(self) -> None:
        """Sends a report now and requests newer parameters. Answers to other reports contain none."""
        self._refreshes = True
        self._wanted.set()

    def load(self) -> None:
        """Loads the newest received parameters. Raises Stopped if the run is done."""
        if self._session is None:
            return
        if self._session.newest:
            # Use one atomic step, since the thread may be receiving newer parameters.
            version, newest = self._session.newest.pop()
            assert self._parameters is not None
            load_flat(self._parameters, newest)
            self.version = version
        self._connections.check(self._session)

    def wait_for_room(self, shard: LocalShard) -> None:
        """Blocks until learner 0 raises the insertion limit of ``shard``. Raises Stopped."""
        while not shard.shard.has_room:
            with self._answered:
                self._wanted.set()
                self._answered.wait_for(
                    lambda: shard.shard.has_room or self._stopping.is_set(), PERIOD_SECONDS
                )
            self._connections.check()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._shard is not None or self._counters.news or self._refreshes:
                    self._report()
                self._wanted.wait(PERIOD_SECONDS)
                self._wanted.clear()
        except Stopped:
            return

    def _report(self) -> None:
        if self._session is None:
            self._session = self._connect(None)
            self._session.attach()
        session, local = self._session, self._shard
        try:
            refresh, self._refreshes = self._refreshes, False
            shard = local.describe() if local is not None else None
            session.send(**self._counters.take(), shard=shard, refresh=refresh)
            session.settle()
        except Stopped:
            raise
        except TransportError as error:
            _LOG.warning("a report was refused: %s", error)
            return
        if local is not None:
            local.shard.set_limit(None if session.done else session.answer["limit"])
        with self._answered:
            self._answered.notify_all()

    def _connect(self, parameters: Tensor | None) -> ReportSession:
        session = self._connections.learner(0, PATH, parameters, kind=ReportSession)
        assert isinstance(session, ReportSession)
        return session
