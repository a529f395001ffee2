"""The learner: takes unrolls from the queue, improves the policy, publishes it.

Samplers come and go as they like; nothing here waits for any one of them. What must survive this process is in its
checkpoints: ``Learner.get_state`` names all of it.
"""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any, Literal

import torch
from rltraining_api.contract import (
    RENDEZVOUS_PATH,
    STATUS_PATH,
    ExitCode,
    LearnerReport,
    ReportedCondition,
    Warning,
)
from rltraining_api.status import Progress
from torch import Tensor

from rltraining_trainer.algorithms.impala import ImpalaLearner
from rltraining_trainer.checkpoint import CheckpointStore, CheckpointWriter, restore_rng, rng_state, snapshot
from rltraining_trainer.dataflow import ModelServer, Trajectory, TrajectoryQueue, TrajectoryServer
from rltraining_trainer.environments import make_environments
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.metrics import MetricsWriter, WaitMeter
from rltraining_trainer.networks import build_actor_critic
from rltraining_trainer.policy import export_policy
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.progress import ProgressTracker
from rltraining_trainer.roles.start import find_start
from rltraining_trainer.roles.stop_rules import StopRules
from rltraining_trainer.transport import Endpoint, MemberServer, Stopped

_LOG = logging.getLogger(__name__)

METRICS_PERIOD = 0.2
"""Seconds between two points of the curves."""
IDLE_PERIOD = 0.25
"""Seconds without an unroll after which the learner looks at its clock and at the signal to stop."""
FAREWELL = 0.3
"""Seconds for which samplers that push are told that the run is done."""


def run_learner(context: Context) -> tuple[int, LearnerReport]:
    """Learn until a stop rule is met; the exit code and the last report.

    Raises:
        Stopped: the process was told to end; a checkpoint was written before.
    """
    # Handlers run on RPC threads: they must not wait 5 ms for this thread to let go of the interpreter.
    sys.setswitchinterval(0.0005)
    learner = Learner(context)
    try:
        learner.serve()
        learner.train()
        learner.finish()
    except Stopped:
        learner.save()
        raise
    finally:
        learner.close()
    return ExitCode.DONE, learner.report()


class Learner:
    """One run's learner: built from the job, continued from its newest checkpoint."""

    def __init__(self, context: Context) -> None:
        spec = context.job.spec
        self._context = context
        assert spec.algorithm.impala is not None, "validation lets no other algorithm through"
        self._settings = spec.algorithm.impala
        torch.manual_seed(spec.seed)
        environments = make_environments(spec.environment, 1)
        self._spaces = (environments.single_observation_space, environments.single_action_space)
        environments.close()
        network, distribution = build_actor_critic(spec.network, *self._spaces)
        self._algorithm = ImpalaLearner(network, distribution, self._settings, spec.stop.environment_steps)
        self._models = ModelServer()
        self._queue: TrajectoryQueue[Trajectory] = TrajectoryQueue(self._settings.queue_capacity)
        self._progress = ProgressTracker(spec.stop)
        self._stop_rules = StopRules(context.job_file, spec.stop)
        self._server = TrajectoryServer(self._queue, self._models)
        self._endpoint = Endpoint(context.pod, context.token, self._server.services)
        self._http = MemberServer(
            context.http_port,
            context.token,
            ready=lambda: self._state != "Starting",
            documents={RENDEZVOUS_PATH: self._rendezvous, STATUS_PATH: lambda: self.report().to_dict()},
        )
        self._state: Literal["Starting", "Waiting", "Training", "Finished"] = "Starting"
        self._stop_reason: str | None = None
        self._policy_uri: str | None = None

        store = CheckpointStore(f"{context.storage}/checkpoints", spec.checkpoint.keep)
        start = find_start(store, spec.checkpoint.resume_from)
        if start.state is not None:
            self._set_state(start.state, start.uri)
        self._models.publish(self._algorithm.parameters)
        self._warnings = start.warnings
        self._checkpoints = CheckpointWriter(store)
        self._metrics = MetricsWriter(
            str(context.output),
            run_id=self._endpoint.incarnation,
            resume_step=None if start.state is None else self._progress.environment_steps,
        )
        self._batch: list[Trajectory] = []
        self._waits = WaitMeter()
        self._next_metrics = 0.0
        self._next_checkpoint = time.monotonic() + spec.checkpoint.every_seconds

    def serve(self) -> None:
        """From here on samplers can come."""
        self._endpoint.start()
        self._state = "Waiting"
        self._http.start()
        _LOG.info(
            "ready at step %d, with %d parameters",
            self._progress.environment_steps,
            self._algorithm.parameters.numel(),
        )

    def train(self) -> None:
        """Update until a stop rule is met."""
        while self._stop_reason is None:
            batch = self._next_batch()
            now = time.monotonic()
            if batch:
                self._state = "Training"
                self._progress.add(batch, self._models.version, now)
                unrolls: list[Any] = [trajectory.unroll for trajectory in batch]
                terms = self._algorithm.step(unrolls, self._progress.environment_steps)
                self._models.publish(self._algorithm.parameters)
            self._progress.set_stop(self._stop_rules.current(now))
            self._stop_reason = self._progress.check(now).reason
            if batch and (now >= self._next_metrics or self._stop_reason):  # curves end where the run ends
                self._next_metrics = now + METRICS_PERIOD
                self._write_metrics(terms, now)
            if now >= self._next_checkpoint:
                self._next_checkpoint = now + self._context.job.spec.checkpoint.every_seconds
                self.save()

    def finish(self) -> None:
        """Write everything that is to be left before anybody hears that the run is done."""
        _LOG.info("%s", self._stop_reason)
        self.save()
        self._policy_uri = export_policy(
            f"{self._context.storage}/policy",
            self._algorithm.network,
            self._context.job,
            self._spaces,
            self._counters(),
        )
        self._checkpoints.flush(timeout=60.0)
        self._state = "Finished"
        self._server.finish()
        time.sleep(FAREWELL)

    def save(self) -> None:
        """Have a checkpoint of this moment written, in the background."""
        self._checkpoints.submit(self._progress.environment_steps, snapshot(self._get_state()))

    def close(self) -> None:
        """End connections and threads; what is being written is written to its end."""
        self._checkpoints.close(timeout=20.0)
        self._metrics.close()
        self._http.stop()
        self._endpoint.stop()

    def report(self) -> LearnerReport:
        """What this learner says of itself now. Called from the HTTP server's threads too."""
        return LearnerReport(
            state=self._state,
            incarnation=self._endpoint.incarnation,
            progress=self._counters(),
            checkpoint=self._checkpoints.newest,
            policy_uri=self._policy_uri,
            stop_reason=self._stop_reason,
            conditions=self._conditions(),
            warnings=self._warnings + self._metrics_warning(),
            time=datetime.now(UTC),
        )

    def _next_batch(self) -> list[Trajectory]:
        """As many unrolls as one update uses; none if they do not come within IDLE_PERIOD (they are then kept)."""
        self._waits.begin(time.monotonic())
        while len(self._batch) < self._settings.batch_unrolls:
            if self._context.stopping.is_set():
                raise Stopped("told to end")
            trajectory = self._queue.get(IDLE_PERIOD)
            if trajectory is None:
                return []
            self._batch.append(trajectory)
        self._waits.end(time.monotonic())
        batch, self._batch = self._batch, []
        return batch

    def _get_state(self) -> dict[str, Any]:
        """All that a checkpoint must hold: with it a new learner goes on as this one would have."""
        return {
            "learner": self._algorithm.get_state(),
            "models": self._models.get_state(),
            "queue": self._queue.get_state(),
            "progress": self._progress.get_state(time.monotonic()),
            "rng": rng_state(),
        }

    def _set_state(self, state: dict[str, Any], uri: str) -> None:
        try:
            self._algorithm.set_state(state["learner"])
        except (ValueError, RuntimeError, KeyError) as error:
            raise BadConfiguration(f"checkpoint {uri} is of another job: {error}") from error
        self._models.set_state(state["models"])
        self._queue.set_state(state["queue"])
        self._progress.set_state(state["progress"])
        restore_rng(state["rng"])
        _LOG.info("went on from checkpoint %s", uri)

    def _rendezvous(self) -> dict[str, Any]:
        return {
            "url": self._endpoint.url,
            "incarnation": self._endpoint.incarnation,
            "modelVersion": self._models.version,
        }

    def _counters(self) -> Progress:
        return self._progress.report(self._algorithm.updates, self._models.version, time.monotonic())

    def _conditions(self) -> tuple[ReportedCondition, ...]:
        if self._checkpoints.failure:
            return (_checkpoint_condition("False", "CheckpointFailed", self._checkpoints.failure),)
        if self._checkpoints.newest:
            newest = f"the newest is of step {self._checkpoints.newest.step}"
            return (_checkpoint_condition("True", "CheckpointWritten", newest),)
        return ()

    def _metrics_warning(self) -> tuple[Warning, ...]:
        failure = self._metrics.failure
        return (Warning(reason="MetricsNotWritten", message=failure),) if failure else ()

    def _write_metrics(self, terms: dict[str, Tensor], now: float) -> None:
        progress = self._counters()
        queue = self._queue.counts()
        values: dict[str, float | None] = {
            "seconds": self._progress.seconds(now),
            "environmentSteps": progress.environment_steps,
            "episodes": progress.episodes,
            "updates": progress.updates,
            "meanReturn": progress.mean_return,
            "stepsPerSecond": progress.steps_per_second,
            "policyLag": progress.policy_lag,
            "learningRate": self._algorithm.learning_rate(progress.environment_steps),
            **{f"loss/{name}": term.item() for name, term in terms.items()},
            "unrolls/pushed": queue.pushed,
            "unrolls/used": queue.used,
            "unrolls/dropped": queue.dropped,
            "unrolls/queued": queue.queued,
            "learner/longestWait": self._waits.take(),
            "parameters/bytesSent": self._models.bytes_sent,
        }
        self._metrics.write(progress.environment_steps, values, time.time())


def _checkpoint_condition(status: Literal["True", "False"], reason: str, message: str) -> ReportedCondition:
    return ReportedCondition(type="CheckpointHealthy", status=status, reason=reason, message=message)
