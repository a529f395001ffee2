"""The learner: takes what its dataflow brings, improves the policy, publishes it.

Samplers come and go as they like; nothing here waits for any one of them. What must survive this process is in its
checkpoints.

Several learners update in step, each from its part of the data. The first of them keeps the run's record and decides when it
is over; the others have what the updates give them.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import torch
from rltraining_api.algorithms import A2c, A3c, DdpgApex, DqnApex, Impala, Ppo
from rltraining_api.contract import RENDEZVOUS_PATH, STATUS_PATH, ExitCode, LearnerReport
from torch import Tensor

from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.environments import make_spaces
from rltraining_trainer.group import GroupChanged, LearnerGroup, SingleLearnerGroup
from rltraining_trainer.metrics import Numbers
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.discards import Discards
from rltraining_trainer.roles.flow import Flow
from rltraining_trainer.roles.gradient_flow import GradientFlow
from rltraining_trainer.roles.link import FAREWELL
from rltraining_trainer.roles.live_spec import LiveSpec
from rltraining_trainer.roles.record import RunRecord
from rltraining_trainer.roles.replay_flow import ReplayFlow
from rltraining_trainer.roles.rollout_flow import RolloutFlow
from rltraining_trainer.roles.scrape import published, scraped
from rltraining_trainer.roles.trajectory_flow import TrajectoryFlow
from rltraining_trainer.transport import Endpoint, MemberServer, Stopped

_LOG = logging.getLogger(__name__)

IDLE_PERIOD = 0.25
"""Seconds without data after which the learner looks at its clock and at the signal to stop."""


def run_learner(context: Context) -> tuple[int, LearnerReport]:
    """Learn until a stop rule is met; the exit code and the last report.

    Raises:
        Stopped: the process was asked to end; a checkpoint was written before.
    """
    # Handlers run on RPC threads: they must not wait 5 ms for this thread to let go of the interpreter.
    sys.setswitchinterval(0.0005)
    learner = Learner(context)
    try:
        learner.serve()
        learner.train()
        learner.finish()
        report = learner.report()
    except Stopped:
        learner.save()
        raise
    finally:
        learner.close()
    return ExitCode.DONE, report


class Learner:
    """One run's learner: built from the job."""

    def __init__(self, context: Context) -> None:
        spec = context.job.spec
        self._context = context
        torch.manual_seed(spec.seed)
        self._spaces = make_spaces(spec.environment)
        self._models = ModelServer()
        self._live = live = LiveSpec(context.job_file, spec)
        self._discards = Discards()
        self._flow = self._make_flow(live)
        self._group = self._make_group() if len(context.learners) > 1 else SingleLearnerGroup()
        services = {**self._discards.watched(self._flow.services), **self._group.services}
        self._endpoint = Endpoint(context.pod, context.token, services, direct=self._flow.sends_large)
        self._http = MemberServer(
            context.http_port,
            context.token,
            ready=lambda: self._state != "Starting",
            documents={RENDEZVOUS_PATH: self._rendezvous, STATUS_PATH: lambda: self.report().to_dict()},
            metrics=scraped(context, "learner", self._numbers),
            host=context.http_host,
        )
        self._state: Literal["Starting", "Waiting", "Training", "Finished"] = "Starting"
        self._batch: Any = None  # kept until there is an update, or all go back
        self._record: RunRecord | None = None
        if context.index == 0:
            parts = (context, self._flow, self._models, live, self._endpoint.incarnation)
            self._record = RunRecord(*parts, self._spaces, self._discards)
        self._models.publish(self._flow.algorithm.parameters)

    def serve(self) -> None:
        """From here on samplers can come."""
        self._endpoint.start()
        self._state = "Waiting"
        self._http.start()
        self._flow.start()
        _LOG.info("ready with %d parameters", self._flow.algorithm.parameters.numel())
        self._form_group()

    def train(self) -> None:
        """Update until the first learner says that a stop rule is met."""
        done = False
        while not done:
            leaving = self._context.stopping.is_set()
            if leaving and self._flow.shares_whole:
                raise Stopped("asked to end")
            try:
                done, terms = self._update(leaving)
            except GroupChanged as error:
                if leaving:
                    raise Stopped("asked to end") from error
                _LOG.warning("the learners form a new group: %s", error)
                self._form_anew()
                terms = None
            if leaving:
                raise Stopped("asked to end, after a checkpoint of all learners")
            now = time.monotonic()
            self._flow.tend(now)
            if self._record is not None:
                self._record.look(terms, now)
                if self._record.begun:
                    self._state = "Training"

    def finish(self) -> None:
        """Write everything that is to be left before anybody hears that the run is done."""
        if self._record is not None:
            self._record.finish(self._flow.algorithm.network, self._spaces)
        self._state = "Finished"
        self._flow.finish()
        time.sleep(FAREWELL)

    def save(self) -> None:
        """Writes a checkpoint, in the background, and the policy, if this learner has the whole state."""
        if self._record is not None and self._flow.shares_whole:
            self._record.save()
            self._record.write_policy(self._flow.algorithm.network, self._spaces)

    def close(self) -> None:
        """End connections and threads; what is being written is written to its end."""
        if self._record is not None:
            self._record.close()
        self._group.close()
        self._http.stop()
        self._flow.close()
        self._endpoint.stop()

    def report(self) -> LearnerReport:
        """What this learner says of itself now. Called from the HTTP server's threads too."""
        own = LearnerReport(state=self._state, incarnation=self._endpoint.incarnation, time=datetime.now(UTC))
        return self._record.report(own, self._group.warning) if self._record is not None else own

    def _numbers(self) -> Numbers:
        """For Prometheus; called from the HTTP server's threads."""
        numbers = {
            **self._flow.metrics(),
            **published(self._models),
            "updates": self._flow.algorithm.updates,
        }
        if (record := self._record) is None:
            return numbers
        return {**record.point, **numbers, "learner/waitSeconds": record.waits.total(time.monotonic())}

    def _form_group(self) -> None:
        self._group.form(self._context.stopping)
        self._flow.share(self._group.rank, self._group.size)

    def _form_anew(self) -> None:
        self._flow.part()
        if not self._flow.shares_whole:
            self._batch = None  # made with parameters that are given up
            if self._record is not None:
                self._record.go_back()
                self._models.publish(self._flow.algorithm.parameters)
        self._form_group()

    def _make_flow(self, live: LiveSpec) -> Flow:
        settings = self._context.job.spec.algorithm.parameters
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if isinstance(settings, Impala):
            return TrajectoryFlow(
                self._context,
                settings,
                self._spaces,
                self._models,
                device,
                lambda: self._endpoint,
                self._discards,
            )
        if isinstance(settings, A3c | A2c | Ppo):
            at_learner = self._context.job.spec.gradients_at == "Learner"
            return (RolloutFlow if at_learner else GradientFlow)(
                self._context, settings, self._spaces, self._models, device, live, lambda: self._endpoint
            )
        assert isinstance(settings, DqnApex | DdpgApex), "no other algorithm is left"
        parts = (self._context, settings, self._spaces, self._models, device, live)
        return ReplayFlow(*parts, lambda: self._endpoint)

    def _make_group(self) -> LearnerGroup:
        flow = self._flow

        def set_state(state: dict[str, Any]) -> None:
            flow.set_common_state(state)
            self._models.publish(flow.algorithm.parameters)

        return LearnerGroup(
            self._context.index,
            len(self._context.learners),
            endpoint=lambda: self._endpoint,
            first_learner=self._context.learners[0],
            token=self._context.token,
            device=flow.algorithm.parameters.device,
            updates=lambda: flow.common_updates,
            get_state=flow.get_common_state,
            set_state=set_state,
        )

    def _next_batch(self) -> Any:
        if self._record is None:
            return self._flow.next_batch(IDLE_PERIOD)
        self._record.waits.begin(time.monotonic())
        batch = self._flow.next_batch(IDLE_PERIOD)
        if batch is not None:
            self._record.waits.end(time.monotonic())
        return batch

    def _update(self, leaving: bool) -> tuple[bool, Mapping[str, Tensor | float] | None]:
        """One round of all learners: whether the run is over, and terms of the loss; None if there was no update."""
        record = self._record
        over = record is not None and record.stop_reason is not None
        if self._batch is None and not over:
            self._batch = self._next_batch()
        batch = None if over else self._batch
        checkpoint = leaving or (record is not None and record.wants_checkpoint(time.monotonic()))
        round_ = self._group.begin(
            self._flow.normalizer(batch) if batch is not None else 0.0,
            over and not checkpoint,  # the last checkpoint comes first: it may fail, and all go back
            update=self._flow.allows_update(batch),
            hold=over or self._flow.holds(batch),
            checkpoint=checkpoint,
            total_steps=self._live.stop.environment_steps if record is not None else None,
        )
        self._flow.algorithm.total_steps = round_.total_steps
        if round_.checkpoint:
            self._flow.collect(self._group.sum)
            self._group.barrier()  # who leaves now closes what others may still be reading from
            if record is not None:
                record.save()
        if round_.done or not round_.update:
            return round_.done, None
        self._batch = None
        updates = self._flow.algorithm.updates
        terms = self._flow.learn(batch, round_.normalizer, self._group.sum)
        if self._flow.algorithm.updates != updates:
            self._models.publish(self._flow.algorithm.parameters)
        return False, terms

    def _rendezvous(self) -> dict[str, Any]:
        return {
            "url": self._endpoint.url,
            "incarnation": self._endpoint.incarnation,
            "modelVersion": self._models.version,
        }
