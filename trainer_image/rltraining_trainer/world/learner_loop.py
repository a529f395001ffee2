"""The loop of a learner: rounds that all learners make together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from rltraining_trainer.dataflow import ModelServer, check_gradient
from rltraining_trainer.dataflow.reduce import Reduce
from rltraining_trainer.errors import BadConfiguration, Diverged
from rltraining_trainer.group import GroupChanged, LearnerGroup, SingleLearnerGroup
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.record import RunRecord
from rltraining_trainer.roles.spec_watcher import SpecWatcher
from rltraining_trainer.transport import Endpoint, Stopped
from rltraining_trainer.world.members import RepeatedCall
from rltraining_trainer.world.recorder import Recorder
from rltraining_trainer.world.run_state import RunPaths

_LOG = logging.getLogger(__name__)

IDLE_SECONDS = 0.25
"""Longest wait for data, after which a learner checks stop rules and signals."""


class LearnerLoop:
    """The part of a `Run` that updates: `active` with `publish` for a loop in user code, or `train`."""

    def __init__(self, context: Context, live: SpecWatcher, endpoint: Endpoint, device: torch.device) -> None:
        self.done = False
        """Whether a stop rule is met. Equal in all learners."""
        self.models = ModelServer(rounds=context.job.spec.learner.parameter_precision == "BFloat16")
        """The parameters that samplers receive."""
        alone = len(context.learners) == 1
        place = {"index": context.index, "learners": len(context.learners)}
        self.paths = RunPaths(self.models, lambda: live.samplers, **place)
        """The algorithm and the data paths."""
        self._context, self._live, self._endpoint = context, live, endpoint
        self._state: Literal["Starting", "Waiting", "Training", "Finished"] = "Starting"
        self._record: RunRecord | None = None
        self._report: RepeatedCall | None = None  # reports this learner's counters to the first learner
        self._looks = False  # only with a group, since its state may be newer than this one
        self._terms: Mapping[str, Tensor | float] | None = None  # terms of the loss since the last look
        self._published = -1  # number of updates that the published parameters include
        self._batch: Any = None  # batch of `train` for the next update
        self._formed = False  # the data paths belong to a group, also to that of a single learner
        # Several learners sum gradients, and reproducible runs can be repeated as a whole.
        kept = alone and context.job.spec.reproducible is None
        recording = context.job.spec.recording
        self._recorder = Recorder(context.output, context.job_file, recording) if kept else None
        if self._recorder is not None:
            self.paths.other_warnings = self._recorder.warnings
        self.group = SingleLearnerGroup() if alone else self._make_group(device)

    @property
    def updates(self) -> int:
        """Number of updates so far, including updates before a restart."""
        return self.paths.algorithm.updates

    def maximum(self, value: float) -> float:
        """Returns the largest value of all learners, which must call this together. Raises GroupChanged."""
        return self.group.maximum([value])[0]

    def active(self) -> bool:
        """The condition of every learner's loop. Once a stop rule is met, it is False, and the function should return.

        Checks the stop rules, writes points of the curves and checkpoints, and waits until the
        other learners call this method too. If a learner has died or joined, the learners form a
        new group, and the state may be replaced by the newest state of another learner.

        Raises:
            Stopped: this process should end. A checkpoint is written.
            Diverged: the policy of a checkpoint has a value that is NaN or infinite.
            RuntimeError: each learner has a slice of the parameters. Use `train`.
        """
        if self._context.stopping.is_set():
            raise Stopped("asked to end")
        if self._context.job.spec.recording is not None:
            raise BadConfiguration(
                "spec.recording: only updates of run.train() are recorded, and this algorithm calls run.active() instead: use "
                "run.train(), or leave recording out"
            )
        if not self.paths.shares_whole:
            raise RuntimeError(
                "world.gradients() in mode Async gives each of several learners a slice of the parameters, and run.active() "
                "cannot gather them for checkpoints: use mode Sync, one learner, or run.train()"
            )
        self._tick()
        over = False
        if self._looks:
            terms, self._terms = self._terms, None
            over = self._look(terms)
        self.done = self._begin_round(over)
        # Save after the round, which has brought the counts of the other learners.
        if self._looks and (record := self._record) is not None and record.wants_checkpoint(time.monotonic()):
            record.save()
        self._looks = True
        return not self.done

    def train(
        self,
        next_batch: Callable[[float], Any],
        update: Callable[[Any, Reduce], Mapping[str, Tensor | float]],
    ) -> None:
        """Updates until a stop rule is met. An alternative to a loop with `active`, `publish` and `update`.

        All learners update together as soon as one has a batch. After each update the parameters are published, and samplers
        that wait for them continue. If a learner is lost during an update, the update is discarded.

        Args:
            next_batch: returns the data of one update, or None or an empty list after this number of seconds.
            update: learns from a batch, adds 1 to the algorithm's ``updates``, and returns terms of the loss. The batch is None
                if only other learners have one. The second argument sums a gradient ``[N]`` in place over all learners, and
                returns the sum of their weights.

        Raises:
            Stopped: this process should end. A checkpoint is written.
        """
        self._form_group()
        while not self.done:
            leaving = self._context.stopping.is_set()
            if leaving and self.paths.shares_whole:
                raise Stopped("asked to end")
            try:
                terms = self._train_round(next_batch, update, leaving)
            except GroupChanged as error:
                if leaving:
                    raise Stopped("asked to end") from error
                _LOG.warning("the learners form a new group: %s", error)
                self._form_new_group()
                terms = None
            if leaving:
                raise Stopped("asked to end, after a checkpoint of all learners")
            self._tick()
            self._look(terms)

    def publish(self, parameters: Tensor | None = None) -> None:
        """Makes parameters available to all samplers, which receive them with their next answer.

        Args:
            parameters: flat ``[N]``. None: the parameters of the ``algorithm`` of `World.run`, if an update has changed them.

        Raises:
            ValueError: ``zero_grad()`` has removed the gradient of these parameters (see `flatten_parameters`).
        """
        if parameters is not None:
            check_gradient(parameters)
            self.models.publish(parameters)
        elif self.updates != self._published and (found := self.paths.parameters) is not None:
            self.models.publish(found)
            self._published = self.updates

    def _tick(self) -> None:
        for path in self.paths.all():
            path.tick()
        self.paths.reports.release()
        if self._report is not None:
            self._report.tick(time.monotonic())

    def _look(self, terms: Mapping[str, Tensor | float] | None) -> bool:
        """Records the last update. Returns whether the record has a stop reason."""
        now = time.monotonic()
        self._live.look(now)
        if (record := self._record) is None:
            return False
        record.look(terms, now)
        if self._recorder is not None:
            returns = record.progress.returns
            self._recorder.check_return(returns.mean if returns.full else None)
        if self._state == "Waiting" and (record.begun or self.updates):
            self._state = "Training"
        return record.stop_reason is not None

    def _begin_round(self, over: bool) -> bool:
        """Returns whether the first learner ends the run. The group then has all live learners."""
        while True:
            try:
                if not (self._formed and self.group.size):
                    self._form_group()
                decision = self.group.begin(over, values=self.paths.counts.values)
            except GroupChanged as error:
                _LOG.warning("the learners form a new group: %s", error)
                continue
            self.paths.follow_counts(decision.largest)
            return decision.done

    def _train_round(
        self,
        next_batch: Callable[[float], Any],
        update: Callable[[Any, Reduce], Mapping[str, Tensor | float]],
        leaving: bool,
    ) -> Mapping[str, Tensor | float] | None:
        """Makes one round of all learners. Returns terms of the loss after an update."""
        # Wait for a batch, but not if the run is over.
        record, paths = self._record, self.paths
        over = record is not None and record.stop_reason is not None
        if self._batch is None and not over:
            self._batch = self._wait_for(next_batch)
        batch = self._batch

        # Agree with all learners on what to do.
        checkpoint = leaving or (record is not None and record.wants_checkpoint(time.monotonic()))
        round_ = self.group.begin(
            over and not checkpoint,  # write the last checkpoint first, since all roll back if it fails
            update=batch is not None and not over and (self._context.index == 0 or not paths.leads),
            hold=over or any(path.waits_for_data(batch) for path in paths.all()),
            checkpoint=checkpoint,
            total_steps=self._live.stop.environment_steps if record is not None else None,
            values=paths.counts.values,
        )
        paths.follow_counts(round_.largest)
        algorithm: Any = paths.algorithm
        algorithm.total_steps = round_.total_steps

        # Save the state of all learners.
        if round_.checkpoint:
            for path in paths.all():
                path.gather_state(self.group.sum)
            self.group.barrier()  # a learner that leaves closes connections that others may be reading from
            if record is not None:
                record.save()
        self.done = round_.done
        if round_.done or not round_.update:
            return None

        # Update and publish the parameters. The batch is used up even if the update is discarded.
        self._batch = None
        if self._recorder is not None:
            self._recorder.before_update(paths, batch, round_.total_steps)
        try:
            terms = update(None if over else batch, self.group.sum)
        except Diverged as error:
            if self._recorder is not None:
                self._recorder.diverged(paths, error)
            raise
        if self._recorder is not None:
            self._recorder.after_update(paths, is_complete=not self._context.stopping.is_set())
        self.publish()
        # Keep no graph of the loss, and let torch not warn of terms that have a gradient.
        return {name: term.detach() if isinstance(term, Tensor) else term for name, term in terms.items()}

    def _wait_for(self, next_batch: Callable[[float], Any]) -> Any:
        if self._record is not None:
            self._record.waits.begin(time.monotonic())
        batch = next_batch(IDLE_SECONDS)
        if batch is None or (isinstance(batch, list) and not batch):
            return None
        if self._record is not None:
            self._record.waits.end(time.monotonic())
        return batch

    def _form_group(self) -> None:
        self.group.form(self._context.stopping)
        for path in self.paths.all():
            path.on_group_formed(self.group.rank, self.group.size)
        self._formed = True

    def _form_new_group(self) -> None:
        """Forms a group after a learner was lost or has joined. Keeps the batch if it can still be used."""
        if self.paths.shares_whole and self.updates != self._published:
            # Publish an update that was made before the learner was lost.
            self.publish()
            for path in self.paths.all():
                path.tick()
        for path in self.paths.all():
            path.leave_group()
        if not all(path.keeps_batch for path in self.paths.all()):
            self._batch = None
        if not self.paths.shares_whole:
            # A slice of the state is lost: all learners return to the newest checkpoint.
            self._batch = None
            if self._record is not None:
                self._record.rollback()
                self._published = -1
                self.publish()
        self._form_group()

    def _make_group(self, device: torch.device) -> LearnerGroup:
        context, paths = self._context, self.paths

        def set_state(state: dict[str, Any]) -> None:
            paths.set_common_state(state)
            self._published = -1
            self.publish()

        return LearnerGroup(
            context.index,
            len(context.learners),
            endpoint=self._endpoint,
            first_learner=context.learners[0],
            token=context.token,
            device=device,
            updates=lambda: paths.common_updates(context.index),
            get_state=paths.get_common_state,
            set_state=set_state,
            tls_port=context.tls_port,
        )
