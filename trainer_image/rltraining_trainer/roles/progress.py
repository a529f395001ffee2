"""Progress of a run: counters, returns, rates and policy lag, across restarts of the learner."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rltraining_api.contract import Warning
from rltraining_api.lifecycle import Stop
from rltraining_api.status import Progress

from rltraining_trainer.dataflow.reports import StatsDelta
from rltraining_trainer.metrics import (
    EpisodeReturns,
    EvaluationTracker,
    LearningCurve,
    RateMeter,
    SmoothedReturn,
    StopCheck,
    check_stop,
)
from rltraining_trainer.transport import Traffic

_LOG = logging.getLogger(__name__)

LOG_PERIOD = 30.0
"""Seconds between two lines of progress in the log."""
LAGS = 1000
"""Number of newest lags from which the percentiles are computed."""
ENDLESS_STEPS = 100_000
"""After this many environment steps without the end of an episode there is a warning."""


class ProgressLog:
    """Logs a line of progress now and then, so that the log of the learner shows that it trains."""

    def __init__(self, now: float) -> None:
        self._next = now + LOG_PERIOD

    def tick(self, now: float, progress: Callable[[], Progress]) -> None:
        """Logs a line if it is due. ``now``: current monotonic time."""
        if now >= self._next:
            self._next = now + LOG_PERIOD
            _LOG.info("%s", progress_line(progress()))


def progress_line(progress: Progress) -> str:
    """Formats progress for the log: `412,160 steps, 251,003 steps/s, return 213.4, lag 2, 201 updates, 41%`."""
    if not progress.environment_steps:
        return "no steps have arrived from samplers yet"
    parts = [f"{progress.environment_steps:,} steps"]
    if progress.steps_per_second is not None:
        parts.append(f"{progress.steps_per_second:,.0f} steps/s")
    if progress.mean_return is not None:
        parts.append(f"return {progress.mean_return:.4g}")
    if progress.policy_lag is not None:
        parts.append(f"lag {progress.policy_lag:.3g}")
    parts.append(f"{progress.updates:,} updates")
    if progress.percent is not None:
        parts.append(f"{progress.percent:.0f}%")
    return ", ".join(parts)


class ProgressTracker:
    """Counts the steps and episodes of samplers. Times are seconds of a monotonic clock.

    Args:
        stop: the stop rules.
        traffic: the bytes of this learner's messages.
    """

    def __init__(self, stop: Stop, traffic: Traffic) -> None:
        self.environment_steps = 0
        self.episodes = 0
        self.curve = LearningCurve()
        self.evaluations = EvaluationTracker(stop)
        self._stop = stop
        self.returns, self._smoothed = _meters(stop)
        self.best_return: float | None = None
        """Highest mean return over the full number of episodes."""
        self._traffic = traffic
        self._rate, self._received, self._sent = RateMeter(), RateMeter(), RateMeter()
        self._late_steps = 0
        self._lag: float | None = None
        self._lags: deque[float] = deque(maxlen=LAGS)
        self._seconds_before = 0.0
        self._started: float | None = None

    def add(self, deltas: Iterable[StatsDelta], now: float) -> None:
        """Adds the counts since the last call."""
        if self._started is None:
            self._started = now
            self._rate.update(self.environment_steps - self._late_steps, now)
        for delta in deltas:
            self.environment_steps += delta.steps
            self._late_steps += delta.steps if delta.late else 0
            self.episodes += delta.episodes
            if delta.returns.numel():
                self.returns.add(delta.returns)
                if self._smoothed is not None:
                    self._smoothed.add(delta.returns)
            if delta.lag is not None:
                # A sampler may have newer parameters, from a learner that was lost.
                lag = float(max(0, delta.lag))
                self._lag = lag if self._lag is None else 0.95 * self._lag + 0.05 * lag
                self._lags.append(lag)
        # Compare with the best once the returns of all samplers are known, as the stop rules do.
        self._note_best()
        self._rate.update(self.environment_steps - self._late_steps, now)
        self._received.update(self._traffic.received, now)
        self._sent.update(self._traffic.sent, now)
        self.curve.add(self.environment_steps, self.seconds(now), self.returns.mean)

    def seconds(self, now: float) -> float:
        """Returns the seconds of training since the first step, over all restarts."""
        return self._seconds_before + (now - self._started if self._started is not None else 0.0)

    def set_stop(self, stop: Stop) -> None:
        """Replaces the stop rules while the job runs. They apply to known returns too."""
        if stop is self._stop:
            return
        state = self._returns_state()
        self._stop = stop
        self.returns, self._smoothed = _meters(stop)
        self._set_returns_state(state)
        self.evaluations.set_stop(stop)

    def check(self, now: float) -> StopCheck:
        if reason := self.evaluations.stop_reason:
            return StopCheck(100.0, reason)
        return check_stop(
            self._stop,
            environment_steps=self.environment_steps,
            seconds=self.seconds(now),
            returns=self.returns,
            smoothed=self._smoothed,
        )

    def report(self, updates: int, model_version: int, now: float, *, over: bool = False) -> Progress:
        """Returns the progress. ``over``: the run is over, and the speed is that of its end."""
        percent = self.check(now).percent
        rates = [
            meter.rate if over else meter.rate_at(total, now)
            for meter, total in (
                (self._rate, self.environment_steps - self._late_steps),
                (self._received, self._traffic.received),
                (self._sent, self._traffic.sent),
            )
        ]
        return Progress(
            environment_steps=self.environment_steps,
            episodes=self.episodes,
            updates=updates,
            model_version=model_version,
            mean_return=_rounded(self.returns.mean, 4),
            best_return=_rounded(self.best_return, 4),
            steps_per_second=_rounded(rates[0], 1),
            received_bytes_per_second=_rounded(rates[1], 0),
            sent_bytes_per_second=_rounded(rates[2], 0),
            percent=_rounded(percent, 1),
            policy_lag=_rounded(self._lag, 2),
            policy_lag_p50=self._lag_percentile(50),
            policy_lag_p99=self._lag_percentile(99),
        )

    def warnings(self, *, untrained: bool = False) -> Iterator[Warning]:
        """Yields a warning of a run without an update, and one while no episode has ended after many steps.

        Without an episode that has ended, returns are unknown.

        Args:
            untrained: The run is over, and there was no update.
        """
        if untrained and self.environment_steps:
            yield Warning(
                reason="NothingLearned",
                message=f"the run is over after {self.environment_steps:,} environment steps and before the first "
                "update, so that the policy is untrained: raise the stop rule, or, with a replay, lower "
                "replay.minimum, the number of items from which on the learner updates",
            )
        if not self.episodes and self.environment_steps >= ENDLESS_STEPS:
            yield Warning(
                reason="NoEpisodeEnds",
                message=f"no episode has ended after {ENDLESS_STEPS:,} steps, so that there are no returns: set "
                "spec.environment.maxEpisodeSteps, or let the environment terminate",
            )

    def get_state(self, now: float) -> dict[str, Any]:
        return {
            "environment_steps": self.environment_steps,
            "episodes": self.episodes,
            "seconds": self.seconds(now),
            "best_return": self.best_return,
            "curve": self.curve.get_state(),
            "evaluations": self.evaluations.get_state(),
            **self._returns_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.environment_steps = state["environment_steps"]
        self.episodes = state["episodes"]
        self._seconds_before, self._started = state["seconds"], None
        self._rate, self._received, self._sent = RateMeter(), RateMeter(), RateMeter()
        self.best_return = state.get("best_return")  # a checkpoint of an earlier version has none
        self.curve.set_state(state["curve"])
        if "evaluations" in state:  # a checkpoint of an earlier version has none
            self.evaluations.set_state(state["evaluations"])
        self._set_returns_state(state)

    def _lag_percentile(self, percent: int) -> float | None:
        """Returns the smallest recent lag that at least ``percent`` of the data do not exceed."""
        lags = sorted(self._lags)
        return lags[math.ceil(percent / 100 * len(lags)) - 1] if lags else None

    def _note_best(self) -> None:
        mean = self.returns.mean
        if self.returns.full and mean is not None and (self.best_return is None or mean > self.best_return):
            self.best_return = mean

    def _returns_state(self) -> dict[str, Any]:
        return {
            "returns": self.returns.get_state(),
            "smoothed": self._smoothed.get_state() if self._smoothed else None,
        }

    def _set_returns_state(self, state: dict[str, Any]) -> None:
        self.returns.set_state(state["returns"])
        if self._smoothed is not None and state["smoothed"] is not None:
            self._smoothed.set_state(state["smoothed"])


def _meters(stop: Stop) -> tuple[EpisodeReturns, SmoothedReturn | None]:
    """Returns the statistics for the stop rules. Without a rule, the mean is reported over 100 episodes."""
    mean, smoothed = stop.mean_return, stop.smoothed_return
    returns = EpisodeReturns(mean.episodes if mean else 100)
    return returns, SmoothedReturn(smoothed.at_least) if smoothed else None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
