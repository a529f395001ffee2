"""A run in a learner: progress, stop rules, curves, checkpoints, status and policy."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import torch
from gymnasium import spaces
from rltraining_api.contract import LearnerReport, Warning
from torch import Tensor

from rltraining_trainer.dataflow import WANTS_NONE
from rltraining_trainer.dataflow.reports import StepCounters
from rltraining_trainer.errors import BadConfiguration, Diverged
from rltraining_trainer.metrics import Numbers
from rltraining_trainer.networks import PolicyNetwork
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.discards import Discards
from rltraining_trainer.roles.record import RunRecord
from rltraining_trainer.roles.spec_watcher import SpecWatcher
from rltraining_trainer.transport import Endpoint
from rltraining_trainer.world.checked_stats import checked_stats
from rltraining_trainer.world.data_path import DataPath
from rltraining_trainer.world.learner_loop import LearnerLoop
from rltraining_trainer.world.members import Member, RepeatedCall
from rltraining_trainer.world.reporter import REPORT
from rltraining_trainer.world.run_state import Algorithm, Stateful, UserState

_LOG = logging.getLogger(__name__)


class Run(LearnerLoop):
    """The run in a learner. The first learner keeps the record. The group's rounds carry the counts of the others, which
    report the returns of their episodes.

    If a learner dies, its next incarnation restarts the function. The state (all of `world.run`'s
    state, and the counts of `update`) is copied from a live learner, or read from the newest
    checkpoint if no learner is alive.
    """

    def __init__(
        self,
        context: Context,
        live: SpecWatcher,
        endpoint: Endpoint,
        first: Member | None,
        device: torch.device,
    ) -> None:
        """For `World`. ``first`` is learner 0, or None in learner 0. ``device``: device of the gradients that learners sum."""
        super().__init__(context, live, endpoint, device)
        self.discards = Discards()
        """Episodes that samplers have discarded."""
        # Learners without the record report returns and discarded episodes to the first one.
        self._counters = StepCounters()
        if first is not None:
            self._report = RepeatedCall(first, REPORT, endpoint, self._news)

    def add_path(self, name: str, path: DataPath) -> None:
        """For `World`: the record and the end of the run include this data path.

        Raises RuntimeError if the run has begun, or has a path of this name.
        """
        if self._state != "Starting":
            raise RuntimeError(f"call world.{name}() before world.run()")
        if name in self.paths.paths:
            raise RuntimeError(f"world.{name}() was called twice: call it once and keep the result")
        self.paths.paths[name] = path

    def begin(
        self,
        policy: PolicyNetwork | None,
        state: Mapping[str, Stateful],
        spaces: tuple[spaces.Space, spaces.Space],
        algorithm: Algorithm | None = None,
    ) -> None:
        """For `World`: sets the policy and the state.

        The first learner continues from the newest checkpoint. Raises BadConfiguration if that
        checkpoint is of another algorithm.
        """
        if algorithm is None:
            if self._context.job.spec.recording is not None:
                raise BadConfiguration(
                    "spec.recording: only algorithms that call world.run(algorithm=...) are recorded: do so, or leave "
                    "recording out"
                )
            self._recorder = None
        elif policy is not None or state:
            ignored = "policy" if policy is not None else f"{min(state)}=..."
            raise TypeError(
                f"world.run(algorithm=..., {ignored}): checkpoints would contain only the state of the algorithm: return all "
                "that they need in its get_state()"
            )
        self.paths.algorithm = UserState(policy, state) if algorithm is None else algorithm
        if self._context.index == 0:
            run_id = self._endpoint.incarnation
            parts = (self._context, self.paths, self.models, self._live, run_id)
            self._record = RunRecord(*parts, spaces, self.discards, self._endpoint.traffic)
        if algorithm is not None:
            self.models.publish(algorithm.parameters)
            self._published = algorithm.updates
        self._state = "Waiting"

    def count(
        self,
        steps: int,
        returns: Tensor | Sequence[float] = (),
        *,
        episodes: int | None = None,
        lag: int | None = None,
    ) -> None:
        """Counts the environment steps of data that this learner has received.

        Args:
            steps: number of environment steps, at least 0.
            returns: ``[K]`` undiscounted returns of the episodes that ended in these steps, for the
                stop rules.
            episodes: number of episodes that ended, if some of them have no return here.
            lag: number of versions between the policy that acted and the newest policy.

        Raises:
            TypeError, ValueError: ``steps`` or ``episodes`` is not a count.
        """
        stats = checked_stats(steps, returns, episodes, lag)
        self.paths.counts.add(stats.steps, stats.episodes)
        if self._record is not None:
            self.paths.received.append(stats)
        elif stats.returns.numel():
            self._counters.add(0, 0, stats.returns)

    def update(
        self,
        steps: int = 0,
        returns: Tensor | Sequence[float] = (),
        *,
        episodes: int | None = None,
        lag: int | None = None,
        **terms: float,
    ) -> None:
        """Counts an update. All learners make the same updates, each with the counts of its data.

        Args:
            steps: see `count`. Leave out the steps that samplers count with `World.count`.
            returns: see `count`.
            episodes: see `count`.
            lag: see `count`.
            terms: further values of the curves, as ``loss/<name>``: numbers, or tensors ``[]``.

        Raises:
            Diverged: a return or a term is NaN or infinite.
            TypeError, ValueError: ``steps`` or ``episodes`` is not a count, or a term is not one number.
        """
        self.count(steps, returns, episodes=episodes, lag=lag)
        self.paths.algorithm.updates += 1
        self._terms = found = {name: _number(name, term) for name, term in terms.items()}
        values = torch.as_tensor(returns, dtype=torch.float32).reshape(-1)
        wrong = values[~torch.isfinite(values)][:1].tolist()
        for name, value in (*found.items(), *(("a return", value) for value in wrong)):
            if not math.isfinite(value):
                raise Diverged(f"{name} is {value} at update {self.updates}")

    def warn(self, reason: str, message: str) -> None:
        """Logs a problem that does not stop the run. The job's status has it until this process ends.

        Args:
            reason: a word in CamelCase, for programs.
            message: one sentence, for people.
        """
        _LOG.warning("%s", message)
        self.paths.own_warnings.append(Warning(reason=reason, message=message))

    def take_moments(self) -> list[Tensor]:
        """Returns the moments of observations that samplers have reported since the last call, each ``[U, 1 + 2·d]``."""
        moments, self.paths.moments = self.paths.moments, []
        return moments

    def report(self) -> LearnerReport:
        """Returns the report for the status. Called from the HTTP server's threads."""
        incarnation, now = self._endpoint.incarnation, datetime.now(UTC)
        own = LearnerReport(state=self._state, incarnation=incarnation, time=now)
        return self._record.report(own, self.group.warning) if self._record is not None else own

    def numbers(self) -> Numbers:
        """Returns the metrics for Prometheus. Called from the HTTP server's threads."""
        numbers = {
            **self.paths.metrics(),
            "parameters/version": self.models.version,
            "parameters/bytesSent": self.models.bytes_sent,
            "updates": self.updates,
        }
        if (record := self._record) is None:
            return numbers
        now = {
            "stepsPerSecond": record.counters().steps_per_second,  # also while no point is written
            "learner/waitSeconds": record.waits.total(time.monotonic()),
        }
        return {**record.point, **numbers, **now}

    def finish(self) -> None:
        """For the trainer: writes the last checkpoint and the policy, when the function returns."""
        if (record := self._record) is not None:
            if not record.ended:
                # Count the update after which the function returned, without a call of `active`.
                terms, self._terms = self._terms, None
                record.look(terms, time.monotonic(), reason="learner(world) returned")
                record.save()
            record.finish()
        self._state = "Finished"
        self.paths.finish()

    def save(self) -> None:
        """For the trainer: writes a checkpoint in the background, and the policy, if this learner has the complete state."""
        if self._record is not None and self.paths.shares_whole:
            self._record.save()
            self._record.write_policy()

    def close(self, *, interrupted: bool = False) -> tuple[Warning, ...]:
        """For the trainer: ends connections and threads. Writes in progress are completed. Returns warnings about them.

        ``interrupted``: the process was asked to end.
        """
        warnings = () if self._record is None else self._record.close(interrupted=interrupted)
        if self._recorder is not None:
            self._recorder.close()
        self.group.close()
        for path in self.paths.all():
            path.close()
        return warnings

    def _news(self) -> dict[str, Any] | None:
        """Returns the next report of this learner to the first one."""
        discards = self.discards.fields()
        if not self._counters.news and not discards:
            return None
        return {"version": WANTS_NONE, "shard": None, **self._counters.take(), **discards}


def _number(name: str, term: Any) -> float:
    if isinstance(term, Tensor) and term.numel() != 1:
        raise ValueError(
            f"run.update({name}=...): a term is one number, not {list(term.shape)}: use its mean or sum"
        )
    return float(term.detach() if isinstance(term, Tensor) else term)  # torch warns if it has a gradient
