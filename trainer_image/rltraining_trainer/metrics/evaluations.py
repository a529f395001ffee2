"""Tracks the evaluations of a run and applies the stop rules that depend on them."""

from __future__ import annotations

from typing import Any

from rltraining_api.evaluation import EvaluationResult, EvaluationStatus
from rltraining_api.lifecycle import Stop


class EvaluationTracker:
    """Counts evaluations and applies `stop.evaluation` and `stop.noImprovement`."""

    def __init__(self, stop: Stop) -> None:
        self.status = EvaluationStatus()
        """Immutable and replaced on every change, so that other threads can read it."""
        self._stop = stop
        self._reached = 0  # evaluations in a row with at least `stop.evaluation.atLeast`
        self._reference: float | None = None  # the mean return that the next improvement must exceed

    def add(self, result: EvaluationResult, best_policy_uri: str | None) -> None:
        """Adds a completed evaluation, with the URI of its policy if it is the best."""
        mean, improves = result.mean_return, self._improves(result.mean_return)
        self._reached = self._reached + 1 if self._is_enough(mean) else 0
        if improves:
            self._reference = mean
        update: dict[str, Any] = {
            "count": self.status.count + 1,
            "without_improvement": 0 if improves else self.status.without_improvement + 1,
            "last": result,
        }
        if best_policy_uri is not None:
            update |= {"best": result, "best_policy_uri": best_policy_uri}
        self._update(**update)

    def add_merged(self, count: int) -> None:
        """Counts due evaluations that were skipped in favour of a later one."""
        self._update(merged=self.status.merged + count)

    def add_restart(self) -> None:
        """Counts a process that was lost during an evaluation."""
        self._update(restarts=self.status.restarts + 1)

    def set_best(self, result: EvaluationResult | None, policy_uri: str | None) -> None:
        """Sets the best evaluation and the URI of its policy. None: there is none."""
        self._update(best=result, best_policy_uri=policy_uri)

    def set_stop(self, stop: Stop) -> None:
        """Changes the rules.

        Under another bound, counting of consecutive evaluations restarts with the last evaluation.
        """
        old, self._stop = self._stop, stop
        self._restart_changed_counts(_at_least(old), _min_delta(old))

    @property
    def stop_reason(self) -> str | None:
        """The stop rule that is met, in one sentence, or None."""
        return self._evaluation_reached() or self._no_improvement()

    def get_state(self) -> dict[str, Any]:
        """Returns the state without the best evaluation, which is stored with its policy."""
        return {
            "status": self.status.model_copy(update={"best": None, "best_policy_uri": None}).to_dict(),
            "at_least": _at_least(self._stop),
            "min_delta": _min_delta(self._stop),
            "reached": self._reached,
            "reference": self._reference,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state except the best evaluation. Treats changed rules like ``set_stop``."""
        best = {"best": self.status.best, "best_policy_uri": self.status.best_policy_uri}
        self.status = EvaluationStatus.model_validate(state["status"], extra="ignore").model_copy(update=best)
        self._reached, self._reference = state["reached"], state["reference"]
        self._restart_changed_counts(state["at_least"], state["min_delta"])

    def _restart_changed_counts(self, at_least: float | None, min_delta: float) -> None:
        """Restarts the counts with a changed bound. The arguments are the earlier bounds."""
        if at_least != _at_least(self._stop):
            last = self.status.last
            self._reached = int(last is not None and self._is_enough(last.mean_return))
        if min_delta != _min_delta(self._stop):
            self._update(without_improvement=0)

    def _is_enough(self, mean: float | None) -> bool:
        bound = _at_least(self._stop)
        return mean is not None and bound is not None and mean >= bound

    def _improves(self, mean: float | None) -> bool:
        if mean is None:  # the mean return was not finite
            return False
        return self._reference is None or mean > self._reference + _min_delta(self._stop)

    def _evaluation_reached(self) -> str | None:
        rule, last = self._stop.evaluation, self.status.last
        if rule is None or last is None or self._reached < rule.times:
            return None
        which = "the evaluation" if rule.times == 1 else f"the last of {rule.times} such evaluations in a row"
        return (
            f"stop.evaluation is met: {which}, of step {last.environment_steps:,}, returned {last.mean_return:.6g} on "
            f"average over {last.episodes} episodes, at least {rule.at_least:g} was asked for"
        )

    def _no_improvement(self) -> str | None:
        rule = self._stop.no_improvement
        if rule is None or self.status.without_improvement < rule.evaluations:
            return None
        more = f" by more than {rule.min_delta:g}" if rule.min_delta else ""
        best = "" if self._reference is None else f" {self._reference:.6g}"
        return (
            f"stop.noImprovement is met: {rule.evaluations} evaluations in a row did not exceed the best mean "
            f"return{best}{more}"
        )

    def _update(self, **values: Any) -> None:
        self.status = self.status.model_copy(update=values)


def _at_least(stop: Stop) -> float | None:
    return stop.evaluation.at_least if stop.evaluation else None


def _min_delta(stop: Stop) -> float:
    return stop.no_improvement.min_delta if stop.no_improvement else 0.0
