"""`world.gradients()` and `world.rollouts()`: samplers send gradients or rollouts, and receive the updated parameters.

In mode Sync all samplers of a learner contribute to each update, and several learners average their updates. In mode Async a
gradient is applied on arrival. Several learners then hold a slice of the parameters each (parameter servers, Dean et al. 2012,
"Large scale distributed deep networks", section 4).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic

import torch
from rltraining_api.algorithms import Aggregate
from rltraining_api.contract import Warning
from torch import Tensor

from rltraining_trainer.dataflow import WANTS_NONE, ModelServer
from rltraining_trainer.dataflow.credit_limit import CreditControl
from rltraining_trainer.dataflow.gradients import (
    GradientQueue,
    GradientServer,
    Reader,
    StragglerPolicy,
    SynchronousGradients,
)
from rltraining_trainer.dataflow.gradients.accounts import P
from rltraining_trainer.dataflow.reduce import Reduce
from rltraining_trainer.metrics import Numbers
from rltraining_trainer.transport import Handler, Stopped
from rltraining_trainer.world.data_path import DataPath, SamplerPath
from rltraining_trainer.world.gradient import Gradient, RolloutStats, fields_of
from rltraining_trainer.world.session import SEND_TIMEOUT, Connections, LearnerSession

PATH = "gradients"
"""Prefix of the services of each learner to which samplers push."""
UPDATE_TIMEOUT = 600.0
"""Seconds that all updates from one rollout may take in the learner before the sampler reconnects.
It only matters if the learner's machine is lost: the loss of its process breaks the connection."""
_LONGEST_WAIT = 86_400.0
"""Maximum timeout of an answer in seconds: torch's timer counts milliseconds in 32 bits."""
_NO_RETURNS = torch.zeros(0)


class LearnerGradients(DataPath, Generic[P]):
    """A learner's side of the path.

        run.publish(parameters)             # samplers wait for it
        while run.active():
            pushes = gradients.take()       # [] if no update is due
            ... apply them ...
            run.publish(parameters)         # answers the samplers with the updated parameters

    Every push is counted exactly once: ``pushed = applied + dropped + queued``.
    """

    keeps_batch = False

    def __init__(
        self,
        aggregate: Aggregate,
        read: Reader[P],
        *,
        name: str,
        models: ModelServer,
        index: int,
        learners: int,
        samplers: Callable[[], Sequence[str]],
        exchanges: Callable[[], int],
        remaining: Callable[[], float],
        incarnation: str,
        gather_state: Callable[[Reduce], None],
        large: bool,
        stopping: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            aggregate: how pushes are combined into updates.
            read: reads a push from its payload.
            name: prefix of the counters among the metrics.
            samplers: returns the names of the samplers that push to this learner.
            exchanges: returns the number of pushes per rollout in mode Sync.
            remaining: returns the remaining fraction of the run, for the samplers' schedules.
            incarnation: incarnation of this process.
            gather_state: gathers the slices of all learners (see ``DataPath.gather_state``).
            large: messages are large (see ``DataPath.sends_large``).
        """
        self.shares_state = learners == 1 or aggregate.mode == "Sync"
        self.sends_large = large
        self._aggregate, self._name, self._models = aggregate, name, models
        self._index, self._learners, self._clock = index, learners, clock
        self._samplers, self._exchanges, self._remaining = samplers, exchanges, remaining
        self._incarnation, self._gather, self._stopping = incarnation, gather_state, stopping
        self._source = self._make_source()
        self._server = GradientServer(self._source, models, read)
        self._epoch, self._complete, self._groups = "", False, 0
        self._last_batch = float("-inf")
        self._credits: CreditControl | None = None
        # Only the first of several learners hands out credits.
        if isinstance(self._source, GradientQueue) and aggregate.max_policy_lag is not None and index == 0:
            self._credits = CreditControl(self._source.limit, clock)

    @property
    def services(self) -> Mapping[str, Handler]:
        return {f"{PATH}/{name}": handler for name, handler in self._server.services.items()}

    def take(self, timeout: float = 1.0) -> list[P]:
        """Returns the pushes of the next update, at most one per sampler.

        Returns an empty list after ``timeout`` seconds without an update that is due. Raises Stopped, and RuntimeError if
        samplers wait for the first `Run.publish`.
        """
        if self._stopping.is_set() and self.shares_state:
            raise Stopped("asked to end")
        self._models.check_published("gradients.take()")
        self._limit_gradients()
        if self._credits is not None:
            self._credits.wait()
        if not self._source.is_ready(timeout):
            return []
        pushes = list(self._source.take())
        self._last_batch = self._clock()
        if self._credits is not None and isinstance(self._source, GradientQueue):
            self._credits.on_batch(len(pushes), self._source.lacks_credits)
        return pushes

    def lag(self, push: P) -> int:
        """Returns how many versions the parameters of a push are older than the newest ones."""
        return self._models.version - push.version

    @property
    def begins_rollout(self) -> bool:
        """Whether the pushes after this update belong to new rollouts."""
        return self._source.begins_rollout

    def facts(self) -> dict[str, Any]:
        return {
            "begins_rollout": self.begins_rollout,
            "is_first_of_rollout": self._source.place.position == 0,
        }

    def end_iteration(self) -> None:
        """Makes this update the last one from the current rollouts. For mode Sync."""
        assert isinstance(self._source, SynchronousGradients)
        self._source.end_iteration()

    def waits_for_data(self, batch: Any) -> bool:
        # All learners of a synchronous update wait for each other's samplers, but not for dead ones.
        if self._learners == 1 or not self.shares_state or batch:
            return False
        return self._clock() < self._last_batch + self._aggregate.deadline_seconds

    def leave_group(self) -> None:
        self._complete = False
        if isinstance(self._source, SynchronousGradients):
            self._source.discard()
        self._source.restart("")
        self._source.release()

    def on_group_formed(self, rank: int, size: int) -> None:
        # Learners with slices need each other: samplers wait until all are present.
        self._complete = self.shares_state or size == self._learners
        if not self._complete:
            return
        if self.shares_state or self._index == 0:
            self._epoch = self._next_epoch()
            self._groups += 1
        self._limit_gradients()
        self._source.restart(self._epoch)
        self._source.release()

    def gather_state(self, reduce: Reduce) -> None:
        # After a rollback each learner has the complete state already.
        if not self.shares_state and self._complete:
            self._gather(reduce)

    def get_common_state(self) -> dict[str, Any]:
        return {} if self.shares_state else {"epoch": self._next_epoch()}

    def set_common_state(self, state: dict[str, Any]) -> None:
        self._epoch = state.get("epoch", self._epoch)

    def release(self) -> None:
        """Answers the samplers whose pushes were applied, after the parameters were published."""
        self._source.release()

    def tick(self) -> None:
        self._source.remaining = self._remaining()
        if isinstance(self._source, SynchronousGradients):
            self._source.next_exchanges = self._exchanges()
        self._source.release()

    def finish(self) -> None:
        self._server.finish()

    def metrics(self) -> Numbers:
        counts = self._source.counts()._asdict()
        if self._name == "unrolls":
            counts["used"] = counts.pop("applied")
        return {f"{self._name}/{name}": count for name, count in counts.items()}

    def warnings(self) -> tuple[Warning, ...]:
        return self._source.slow.warnings(self._name, self._aggregate.max_policy_lag)

    def get_state(self) -> dict[str, Any]:
        return {**self._source.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._source.set_state(state)  # type: ignore[arg-type]

    def _make_source(self) -> GradientQueue[P] | SynchronousGradients[P]:
        aggregate = self._aggregate
        if aggregate.mode == "Async":
            return GradientQueue(
                self._most_gradients,
                aggregate.deadline_seconds,
                lambda: self._models.version,
                capacity=aggregate.queue_capacity,
                max_lag=aggregate.max_policy_lag,
                sliced=self._learners > 1,
                clock=self._clock,
            )
        patience = StragglerPolicy(self._samplers)
        return SynchronousGradients(
            self._exchanges(), patience, aggregate.deadline_seconds, count=aggregate.count
        )

    def _limit_gradients(self) -> None:
        """Limits the gradients under way to half of the largest policy lag, in updates, since samplers differ in speed."""
        max_lag = self._aggregate.max_policy_lag
        if self._credits is not None and max_lag is not None:
            count = self._most_gradients()
            self._credits.set_batch(count, max(count, count * max_lag // 2))

    def _most_gradients(self) -> int:
        """Returns the number of gradients per update in mode Async.

        It is at most the number of gradients that can exist: one per sampler and a full queue.
        """
        aggregate, samplers = self._aggregate, len(self._samplers())
        return min(aggregate.count or samplers, samplers + aggregate.queue_capacity)

    def _next_epoch(self) -> str:
        # The version cannot be the epoch: it may be equal in two groups, and a sampler would use its rollout again.
        return f"{self._incarnation}.{self._groups}"


class SamplerGradients(SamplerPath):
    """A sampler's connections to its learner, or to all learners that hold a slice of the parameters.

    After each call the slices in the parameters ``[N]`` belong to one version, and to one group of
    learners.
    """

    def __init__(self, connections: Connections, aggregate: Aggregate, *, updates_at_learner: bool) -> None:
        """``updates_at_learner``: answers include the time of all updates from a rollout."""
        self._connections = connections
        learners = len(connections.context.learners)
        own = connections.context.index % learners
        sliced = aggregate.mode == "Async" and learners > 1
        self._learners: Sequence[int] = range(learners) if sliced else (own,)
        self.alone = not sliced
        self._timeout = answer_timeout(aggregate) + (UPDATE_TIMEOUT if updates_at_learner else 0.0)
        self._sessions: list[LearnerSession] = []
        self._cuts: list[slice] = []

    @property
    def version(self) -> int:
        return self._sessions[0].version if self._sessions else WANTS_NONE

    @property
    def place(self) -> tuple[str, int, int]:
        """(epoch, iteration, position) of the parameters (see ``dataflow.gradients``)."""
        epoch, iteration, position = self._sessions[0].answer["place"]
        return epoch, iteration, position

    @property
    def exchanges(self) -> int:
        """Number of gradients to send for the current rollout."""
        return int(self._sessions[0].answer["exchanges"])

    @property
    def remaining(self) -> float:
        """Remaining fraction of the run, from 1 down to 0."""
        return float(self._sessions[0].answer["remaining"])

    def attach(self, parameters: Tensor | None) -> None:
        """Connects to all learners of this sampler and gets their parameters. Raises Stopped."""
        if parameters is None:
            raise RuntimeError("call world.start(parameters): gradients are answered with newer parameters")
        count, size = len(self._learners), parameters.numel()
        self._cuts = [slice(i * size // count, (i + 1) * size // count) for i in range(count)]
        self._sessions = [
            self._connections.learner(learner, PATH, parameters[cut], timeout=self._timeout)
            for learner, cut in zip(self._learners, self._cuts, strict=True)
        ]
        self._at_all(LearnerSession.attach)
        self._come_together()
        self._get_credit()

    def push(self, gradient: Gradient, stats: RolloutStats = RolloutStats()) -> bool:  # noqa: B008
        """Sends a gradient with statistics not sent before, and gets newer parameters.

        Returns whether the gradient was used. Raises Stopped, and TypeError or ValueError like `fields_of`.
        """
        self._connections.check_started("gradients.push()")
        place: Any = self.place
        fields = fields_of(gradient, stats, self._cuts[-1].stop)
        for session, cut in zip(self._sessions, self._cuts, strict=True):
            returns = fields["returns"] if session is self._sessions[0] else _NO_RETURNS
            session.send(
                **{**fields, "place": place, "gradient": fields["gradient"][cut], "returns": returns}
            )
        for session in self._sessions:
            session.settle()
        used = bool(self._sessions[0].answer["used"])
        self._come_together()
        self._get_credit()
        return used

    def push_rollout(self, unroll: dict[str, Any]) -> None:
        """Sends a rollout and gets the parameters after the updates from it. Raises Stopped.

        The learner rejects a late rollout, since an older policy made it, and still answers with the
        latest parameters.
        """
        (session,) = self._sessions
        session.send(place=self.place, unroll=unroll)
        session.settle()
        self._get_credit()

    def add_up(self, part: Tensor) -> Tensor:
        """Returns the sum of ``part`` over the samplers of this iteration.

        Returns ``part`` itself if the learner is lost or has moved on.
        """
        total = self._sessions[0].ask(f"{PATH}/sum", {"place": self.place, "part": part})
        return total if isinstance(total, Tensor) else part

    def _get_credit(self) -> None:
        """Waits until the sampler may make its next gradient, with the newest slices. Raises Stopped."""
        first, *others = self._sessions  # only the first learner hands out credits
        self._connections.check(*self._sessions)
        while not first.answer["credit"]:
            first.request(f"{PATH}/credit")
            for session in others:
                session.request(f"{PATH}/pull")
            self._come_together()
            self._connections.check(*self._sessions)

    def _come_together(self) -> None:
        """Fetches all slices until they belong to one version, after learners have rolled back."""
        sessions = self._sessions
        while len({one.answer["place"] for one in sessions}) > 1 and not any(one.done for one in sessions):
            self._at_all(LearnerSession.refresh)

    def _at_all(self, act: Callable[[LearnerSession], None]) -> None:
        """Runs ``act`` on all sessions in parallel, since learners may wait for each other."""
        if len(self._sessions) == 1:
            act(self._sessions[0])
            return
        with ThreadPoolExecutor(len(self._sessions)) as threads:
            list(threads.map(act, self._sessions))


def answer_timeout(aggregate: Aggregate) -> float:
    """Returns the timeout of an answer in seconds, which includes waiting for other samplers."""
    return SEND_TIMEOUT + min(aggregate.deadline_seconds, _LONGEST_WAIT)
