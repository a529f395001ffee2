"""The first learner's record of a run: its progress, curves, checkpoints and end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gymnasium import spaces
from rltraining_api.contract import LearnerReport, Warning
from rltraining_api.status import Progress
from torch import Tensor

from rltraining_trainer.checkpoint import (
    CheckpointStore,
    CheckpointWriter,
    StorageRefused,
    is_transient,
    restore_rng,
    rng_state,
    snapshot,
)
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.errors import Diverged
from rltraining_trainer.metrics import MetricsWriter, Numbers, RateMeter, WaitMeter
from rltraining_trainer.policy import PolicyError, export_policy
from rltraining_trainer.roles.conditions import checkpoint_conditions
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.discards import Discards
from rltraining_trainer.roles.evaluations import Evaluations
from rltraining_trainer.roles.progress import ProgressLog, ProgressTracker
from rltraining_trainer.roles.spec_watcher import SpecWatcher
from rltraining_trainer.roles.start import find_start, not_loaded
from rltraining_trainer.tracking.trackers import start_trackers
from rltraining_trainer.transport import Backoff, Stopped, Traffic, unguarded

if TYPE_CHECKING:
    from rltraining_trainer.world.run_state import RunPaths

_LOG = logging.getLogger(__name__)

METRICS_PERIOD = 0.2
"""Seconds between two points of the curves."""
LAST_WRITES_SECONDS = 600.0
"""How long the last writes of a run are retried. No other process has this data."""
COLLECT_SECONDS = 5.0
"""Minimum seconds between checkpoints made for evaluations. With several learners such a checkpoint
collects their parameters, which delays all of them."""
_LONGEST_PAUSE = 5.0
"""Maximum seconds between two attempts of the last writes."""


class RunRecord:
    """Records a run, and continues from its newest checkpoint if there is one.

    Raises:
        BadConfiguration: the checkpoint is of another job, there is no checkpoint at ``spec.checkpoint.resumeFrom``, or
            there is no policy for ``spec.evaluation``.
    """

    def __init__(
        self,
        context: Context,
        paths: RunPaths,
        models: ModelServer,
        live: SpecWatcher,
        run_id: str,
        spaces: tuple[spaces.Space, spaces.Space],
        discards: Discards,
        traffic: Traffic,
    ) -> None:
        spec = context.job.spec
        self._context, self._paths, self._models, self._spaces = context, paths, models, spaces
        self.progress = ProgressTracker(spec.stop, traffic)
        self.waits = WaitMeter()
        self._wait_rate = RateMeter()
        self._discards = discards
        self.stop_reason: str | None = None
        self._live = live
        store = CheckpointStore(f"{context.storage}/checkpoints", spec.checkpoint.keep)
        self._store = store
        start = find_start(store, spec.checkpoint.resume_from)
        if start.state is not None:
            self._set_state(start.state, start.uri)
        self._updates = paths.algorithm.updates
        self._warnings = start.warnings
        self._evaluations: Evaluations | None = None
        if spec.evaluation is not None:
            tracker, resumed = self.progress.evaluations, start.state is not None
            self._evaluations = Evaluations(
                context, spaces, paths.algorithm.network, tracker, resumed=resumed
            )
        self._trackers = start_trackers(context.job, context.output)
        self._evaluated: Numbers = {}  # evaluation results that are not in the curves yet
        self._checkpoints = CheckpointWriter(store)
        self._run_id, self._times_back = run_id, 0
        self._metrics = self._open_metrics(None if start.state is None else self.progress.environment_steps)
        # The state to which all learners roll back, if each of them holds a slice of it.
        self._newest = None if paths.shares_whole else start.state or snapshot(self._get_state())
        self._every_seconds = spec.checkpoint.every_seconds
        self._next_checkpoint = time.monotonic() + self._every_seconds
        self._next_collection = self._next_metrics = 0.0
        self._log = ProgressLog(time.monotonic())
        self.point: Numbers = {}
        """The newest point of the curves, with the newest terms of the loss. Empty until samplers have sent data."""
        self.ended = False
        """Whether the last checkpoint is written."""
        self._finished = False  # the output of the run is written
        self._saved = self._moment() if self._checkpoints.newest else None
        self._policy_uri: str | None = None
        self._refused = ""  # why the output of the run is not written yet

    @property
    def begun(self) -> bool:
        """Whether samplers have sent data."""
        return self.progress.environment_steps > 0

    def look(self, terms: Mapping[str, Tensor | float] | None, now: float, reason: str | None = None) -> None:
        """Counts new steps and episodes, then checks stop rules, curves and evaluations.

        Does nothing once the last checkpoint is written.

        Args:
            terms: Loss terms of the update just made, None without an update.
            now: Current monotonic time.
            reason: Stop reason of a run that ends now, if no stop rule is met.
        """
        if self.ended:
            return
        if deltas := self._paths.take_stats():
            self.progress.add(deltas, now)
            self._wait_rate.update(self.waits.total(now), now)
        self._updates = self._paths.algorithm.updates
        # Apply the current settings of checkpoints, and the current stop rules, also to the
        # evaluation that has just ended.
        self._apply_checkpoint_settings()
        self.progress.set_stop(self._live.stop)
        if self._evaluations is not None:
            self._evaluated = self._evaluations.take() or self._evaluated
        self.stop_reason = self.progress.check(now).reason or reason
        # Write a point of the curves, which end where the run ends.
        due = now >= self._next_metrics and self._moment() != self._curves_from
        if self.begun and (due or self.stop_reason or self._evaluated):
            self._next_metrics = now + METRICS_PERIOD
            self._write_metrics(terms or {}, now)
        # Start an evaluation. With several learners that hold slices, `save` does this.
        if self._paths.shares_whole and self.stop_reason is None and self._evaluation_is_due:
            self._start_evaluation(now)
        self._log.tick(now, self.counters)

    def _apply_checkpoint_settings(self) -> None:
        """Applies the current `everySeconds`, counted from the newest checkpoint, and `keep`."""
        settings = self._live.checkpoint
        self._next_checkpoint += settings.every_seconds - self._every_seconds
        self._every_seconds = settings.every_seconds
        self._store.keep = settings.keep

    def wants_checkpoint(self, now: float) -> bool:
        """Returns whether a checkpoint is due.

        That is the case periodically if the state has changed, at the end of the run, and, if
        learners hold slices of the parameters, for an evaluation, which needs all of them.
        """
        collect = not self._paths.shares_whole and now >= self._next_collection and self._evaluation_is_due
        return self._is_due(now) or collect or (self.stop_reason is not None and not self.ended)

    def save(self) -> None:
        """Writes a checkpoint of the current state in the background.

        Raises Diverged, and keeps earlier checkpoints, if the policy is not finite.
        """
        now = time.monotonic()
        # Count the steps of other learners that have arrived since the last look, also in the last point of the curves.
        if not self.ended and (deltas := self._paths.take_received()):
            self.progress.add(deltas, now)
            self._updates = self._paths.algorithm.updates
            if self.begun and self.stop_reason is not None:
                self._write_metrics({}, now)
        # Write the state.
        self._next_checkpoint, self._next_collection = now + self._every_seconds, now + COLLECT_SECONDS
        state = snapshot(self._get_state())
        self._checkpoints.submit(self.progress.environment_steps, state)
        self._saved = self._moment()
        self.ended = self.stop_reason is not None
        if not self._paths.shares_whole:
            self._newest = state
            if self.stop_reason is None and self._evaluation_is_due:
                self._start_evaluation(now)

    def rollback(self) -> None:
        """Returns to the newest checkpoint, or to the beginning, after the loss of a learner with a slice of the state."""
        assert self._newest is not None, "a learner that has the whole state continues"
        self._set_state(self._newest, "in memory")
        self._updates = self._paths.algorithm.updates
        if self._evaluations is not None:
            self._evaluations.rollback()
        self.ended, self.stop_reason = False, None
        self._metrics.close()
        self._times_back += 1
        self._metrics = self._open_metrics(self.progress.environment_steps)

    def finish(self) -> None:
        """Writes the output of the run, before the end of the run is reported, since only this process has the output.

        Retries while storage fails, and reports a warning.

        Raises:
            StorageRefused: storage failed for LAST_WRITES_SECONDS. PolicyError, CheckpointError: it failed permanently.
            Stopped: the process was asked to end meanwhile.
        """
        _LOG.info("%s", self.stop_reason)
        self._finish_evaluations()
        backoff, until = Backoff(cap=_LONGEST_PAUSE), time.monotonic() + LAST_WRITES_SECONDS
        while (error := self._write_last(until)) is not None:
            if not is_transient(error.__cause__):
                raise error
            if time.monotonic() >= until:
                raise StorageRefused(
                    f"the output of the run could not be written for {LAST_WRITES_SECONDS:g} s: {error}"
                )
            if self._refused != str(error):
                self._refused = str(error)
                _LOG.warning("%s; trying again for %g s", error, until - time.monotonic())
            if backoff.wait(self._context.stopping):
                raise Stopped("asked to end, before the output of the run was stored")
            if self._checkpoints.error is not None:
                self.save()
        self._refused, self._finished = "", True

    def write_policy(self) -> None:
        """Writes the policy of a run that is interrupted. Logs errors, since the checkpoint has the same parameters."""
        if self.begun:
            try:
                self._export_policy()
            except (PolicyError, Diverged) as error:
                _LOG.warning("%s", error)

    def _finish_evaluations(self) -> None:
        """Evaluates the last policy, which may be the best, and closes the evaluator.

        Closing it ensures that no other process writes below the policy's directory.
        """
        if self._evaluations is None:
            return
        now, stopping = time.monotonic(), self._context.stopping.is_set
        for numbers in self._evaluations.finish(self.counters(), self.progress.seconds(now), stopping):
            self._evaluated = numbers
            self._write_metrics({}, now)
        self._evaluations.close()

    def _export_policy(self) -> str | None:
        """Writes the policy, if there is one, and returns its URI."""
        if (policy := self._paths.algorithm.network) is None:
            return None
        uri = f"{self._context.storage}/policy"
        return export_policy(uri, policy, self._context.job, self._spaces, self.counters())

    def _write_last(self, until: float) -> Exception | None:
        """Tries once to write the output. Returns the error of storage, or None."""
        refused: Exception | None = None
        if self._policy_uri is None:
            try:
                self._policy_uri = self._export_policy()
            except PolicyError as error:
                refused = error
        while not self._checkpoints.flush(timeout=0.25):
            if self._context.stopping.is_set():
                raise Stopped("asked to end, while the last checkpoint was being written")
            if time.monotonic() >= until:
                raise StorageRefused(f"the last checkpoint was not written within {LAST_WRITES_SECONDS:g} s")
        return refused or self._checkpoints.error

    def close(self, *, interrupted: bool) -> tuple[Warning, ...]:
        """Completes writes in progress. ``interrupted``: the process was asked to end. Returns what trackers missed."""
        if self._evaluations is not None:
            self._evaluations.close()
        self._checkpoints.close(timeout=20.0)
        self._metrics.close()
        return self._trackers.close("finished" if self._finished else "killed" if interrupted else "failed")

    def counters(self) -> Progress:
        """Returns the progress at the last `look`, also during an update, for other threads."""
        over, now = self.stop_reason is not None, time.monotonic()
        progress = self.progress.report(self._updates, self._models.version, now, over=over)
        share = self._wait_rate.rate if over else self._wait_rate.rate_at(self.waits.total(now), now)
        percent = None if share is None or not self.waits.total(now) else round(100 * min(1.0, share), 1)
        return progress.model_copy(update={"learner_wait_percent": percent})

    def report(self, own: LearnerReport, trouble: str) -> LearnerReport:
        """Completes ``own``, the reporter's identity. ``trouble``: why groups of learners fail."""
        return LearnerReport(  # validated, unlike a copy of `own`: this cuts texts to the bounds of a report
            state=own.state,
            incarnation=own.incarnation,
            time=own.time,
            preset=self._context.job.spec.preset,
            progress=self.counters(),
            curve=self.progress.curve.points,
            replay=self._paths.replay(),
            evaluation=self.progress.evaluations.status if self._evaluations is not None else None,
            checkpoint=self._checkpoints.newest,
            policy_uri=self._policy_uri,
            stop_reason=self.stop_reason,
            conditions=checkpoint_conditions(self._checkpoints, over=bool(self._refused)),
            warnings=tuple(self._all_warnings(trouble)),
        )

    def _all_warnings(self, trouble: str) -> Iterator[Warning]:
        """Yields current problems first, since a report has room for few."""
        if (sentence := unguarded()) is not None:
            yield Warning(reason="RpcUnguarded", message=sentence)
        if self._metrics.failure:
            yield Warning(reason="MetricsNotWritten", message=self._metrics.failure)
        yield from self._trackers.warnings()
        if self._refused:
            message = (
                f"{self._refused}; the run is over, and this is tried again for {LAST_WRITES_SECONDS:g} s"
            )
            yield Warning(reason="ResultsNotWritten", message=message)
        yield from self.progress.warnings(untrained=self.stop_reason is not None and not self._updates)
        yield from self._paths.warnings()
        if self._evaluations is not None:
            yield from self._evaluations.warnings()
        yield from self._discards.warnings()
        if trouble:
            yield Warning(reason="LearnersApart", message=f"the learners do not stay together: {trouble}")
        yield from self._warnings

    @property
    def _evaluation_is_due(self) -> bool:
        return self._evaluations is not None and self._evaluations.is_due(self.progress.environment_steps)

    def _start_evaluation(self, now: float) -> None:
        assert self._evaluations is not None
        self._evaluations.start(self.counters(), self.progress.seconds(now))

    def _is_due(self, now: float) -> bool:
        """Returns whether it is time for a checkpoint, and the last one has an older state or was not written."""
        stale = self._saved != self._moment() or self._checkpoints.failure is not None
        return now >= self._next_checkpoint and stale

    def _moment(self) -> tuple[int, int]:
        """Returns counters that increase with every change of the state."""
        return self._paths.algorithm.updates, self.progress.environment_steps

    def _get_state(self) -> dict[str, Any]:
        """Returns the content of a checkpoint, from which a new learner continues as this one would have."""
        return {
            "learner": self._paths.get_learner_state(),
            "models": self._models.get_state(),
            "flow": self._paths.get_state(),
            "progress": self.progress.get_state(time.monotonic()),
            "discards": self._discards.get_state(),
            "rng": rng_state(),
        }

    def _set_state(self, state: dict[str, Any], uri: str) -> None:
        try:
            self._paths.algorithm.set_state(state["learner"])
            self._paths.set_state(state["flow"])
        except (ValueError, RuntimeError, KeyError) as error:
            raise not_loaded(uri, error) from error
        self._models.set_state(state["models"])
        self.progress.set_state(state["progress"])
        self._discards.set_state(state.get("discards", {"counts": {}, "first_error": ""}))
        restore_rng(state["rng"])
        _LOG.info("resumed from checkpoint %s", uri)

    def _open_metrics(self, resume_step: int | None) -> MetricsWriter:
        self._curves_from = self._moment()  # no new point exists for this state
        run_id = f"{self._run_id}+{self._times_back}" if self._times_back else self._run_id
        return MetricsWriter(str(self._context.output), run_id=run_id, resume_step=resume_step)

    def _write_metrics(self, terms: Mapping[str, Tensor | float], now: float) -> None:
        progress = self.counters()
        values: dict[str, float | None] = {
            "seconds": self.progress.seconds(now),
            "environmentSteps": progress.environment_steps,
            "episodes": progress.episodes,
            "episodes/discarded": self._discards.total,
            "updates": progress.updates,
            "meanReturn": progress.mean_return,
            "stepsPerSecond": progress.steps_per_second,
            "policyLag": progress.policy_lag,
            "policyLag/p50": progress.policy_lag_p50,
            "policyLag/p99": progress.policy_lag_p99,
            "learningRate": self._paths.algorithm.learning_rate(progress.environment_steps),
            **{f"loss/{name}": float(term) for name, term in terms.items()},
            **self._paths.metrics(),
            "learner/longestWait": self.waits.take(),
            "parameters/bytesSent": self._models.bytes_sent,
            **self._evaluated,
        }
        self._evaluated = {}
        self.point = {**self.point, **values}
        wall_time = time.time()
        self._metrics.write(progress.environment_steps, values, wall_time)
        self._trackers.write(progress.environment_steps, values, wall_time)
