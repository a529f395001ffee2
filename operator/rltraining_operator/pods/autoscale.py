"""Sets the number of samplers of a job with `sampler.autoscale`: the smallest number that keeps the
learner busy. Pure.

The number follows the percentage of the time for which the learner waits for data, averaged over a
window in which the same samplers are ready, but for a few. It rises if the learner waits for long. It
falls, step by step, if the learner hardly waits, and returns to the previous number if the new one
is too few. Numbers that were too few, or that did not help, are not tried again for a while.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from rltraining_api.autoscale import (
    WAIT_PERCENT_MAX,
    Autoscale,
    AutoscaleSearch,
    AutoscaleStatus,
    AutoscaleWindow,
)
from rltraining_api.job import RLTrainingJob
from rltraining_api.roles import SamplerRole
from rltraining_api.status import Progress

from rltraining_operator.observe.observed import Observed
from rltraining_operator.settings import Settings
from rltraining_operator.status.reports import is_report_due

WAIT_PERCENT_LOW = 5.0
"""If the learner waits for a smaller percentage of the time, fewer samplers are tried."""
GAIN_MIN = 0.15
"""More samplers help if the steps per second rise by at least this part of what they would rise by if
each of them produced as much as the others. Otherwise they share cores, or learner and samplers wait
for each other. A third sampler of IMPALA with batchUnrolls 1, for which credits are scarce, brought 15
to 25%."""
SLOWER = 0.75
"""A learner that hardly waits and uses fewer than this part of the steps per second that it used
before is slower, so that fewer samplers may suffice."""
TENTH = 10
"""One of this many samplers is removed at a time, and at least one. As many may restart during a window,
since among a thousand samplers some always do."""
FORGET_WINDOWS = 60
"""Numbers that were too few, or did not help, are tried again after this many windows."""

START = "the start: spec.sampler.replicas, within sampler.autoscale"
CHANGED = "sampler.autoscale was changed"
OVERRIDDEN = (
    "spec.sampler.replicas was changed, which turns sampler.autoscale off until it is changed, "
    "or removed and set again"
)


@dataclass(frozen=True)
class Sight:
    """What a pass sees of the samplers."""

    ready: frozenset[int]
    """Indices of the ready samplers."""
    progress: Progress | None = None
    """The progress of a new report of the learner."""

    def count(self, target: int) -> int:
        """Returns how many of the first `target` samplers are ready."""
        return sum(index < target for index in self.ready)


class Change(NamedTuple):
    """Another number of samplers."""

    target: int
    message: str
    search: AutoscaleSearch


def follow(
    job: RLTrainingJob, observed: Observed, now: datetime, settings: Settings
) -> AutoscaleStatus | None:
    """Returns the number of samplers that the job should have now, with the reason, or None for a job
    without `autoscale`."""
    pods = (pod for pod in observed.role("sampler") if pod.ready and not pod.deleting)
    ready = frozenset(pod.index for pod in pods)
    sight = Sight(ready, _new_progress(observed, now, settings))
    return scale(job.spec.sampler, observed.status.autoscale, sight, now, settings.autoscale_seconds)


def scale(
    role: SamplerRole, old: AutoscaleStatus | None, sight: Sight, now: datetime, seconds: float
) -> AutoscaleStatus | None:
    """Returns the new state. `seconds`: length of a window."""
    if role.autoscale is None:
        return None
    # Adopt a change of the spec immediately.
    state = _adopt(role, role.autoscale, old, sight, now)
    # Begin another window if the number of ready samplers has changed, or the clock was set back.
    if _differ(sight.count(state.target), state.window.ready) or state.window.since > now:
        state = state.model_copy(update={"window": _new_window(sight, state.target, now)})
    # Add the learner's report to the window.
    if state.state == "Overridden" or sight.progress is None:
        return state
    window = _measured(state.window, sight.progress, now, seconds)
    state = state.model_copy(update={"window": window})
    # Decide at the end of the window.
    if window.reports == 0 or now < window.since + timedelta(seconds=seconds):
        return state
    return _decided(state, role.autoscale, sight, now, seconds)


def _differ(one: int, other: int) -> bool:
    """Returns whether two numbers of samplers differ by more than a tenth."""
    return abs(one - other) > max(one, other) // TENTH


def _new_progress(observed: Observed, now: datetime, settings: Settings) -> Progress | None:
    """Returns the progress of the learner's report if this pass copies it into the status, so that each
    report counts once. Returns None before the first update, after the end of training, and
    while there are no further updates, as when a replay memory is filled again."""
    report = observed.report
    if report is None or not is_report_due(observed.status, now, settings):
        return None
    is_training = report.state == "Training" and report.stop_reason is None
    has_learned = report.progress.updates > observed.status.progress.updates
    return report.progress if is_training and has_learned else None


def _adopt(
    role: SamplerRole, bounds: Autoscale, old: AutoscaleStatus | None, sight: Sight, now: datetime
) -> AutoscaleStatus:
    """Returns the state for the present spec, which is a new one if the spec has changed."""
    same_replicas = old is not None and old.observed_replicas == role.replicas
    same_bounds = old is not None and (old.observed_min, old.observed_max) == (bounds.min, bounds.max)
    if old is not None and same_replicas and same_bounds:
        return old
    overridden = same_bounds and not same_replicas
    wanted = old.target if old is not None and same_replicas else role.replicas
    target = role.replicas if overridden else min(max(wanted, bounds.min), bounds.max)
    return AutoscaleStatus(
        target=target,
        state="Overridden" if overridden else "Active",
        message=OVERRIDDEN if overridden else START if old is None else CHANGED,
        observed_replicas=role.replicas,
        observed_min=bounds.min,
        observed_max=bounds.max,
        window=_new_window(sight, target, now),
    )


def _new_window(sight: Sight, target: int, now: datetime) -> AutoscaleWindow:
    return AutoscaleWindow(since=now, ready=sight.count(target))


def _measured(window: AutoscaleWindow, progress: Progress, now: datetime, seconds: float) -> AutoscaleWindow:
    """Returns the window with one more report. Skips reports of its first half, which still describe the
    time before."""
    wait = progress.learner_wait_percent
    if wait is None or window.ready == 0 or now < window.since + timedelta(seconds=seconds / 2):
        return window
    count = window.reports + 1
    return window.model_copy(
        update={
            "reports": count,
            "wait_percent": _mean(window.wait_percent, min(max(wait, 0.0), 100.0), count),
            "steps_per_second": _mean(window.steps_per_second, progress.steps_per_second or 0.0, count),
        }
    )


def _mean(mean: float | None, value: float, count: int) -> float:
    """Returns the mean of `count` values from the mean of the others and the last one."""
    before = mean or 0.0
    return before + (value - before) / count


def _decided(
    state: AutoscaleStatus, bounds: Autoscale, sight: Sight, now: datetime, seconds: float
) -> AutoscaleStatus:
    """Returns the state after the decision at the end of a window."""
    wait, ready = state.window.wait_percent or 0.0, sight.count(state.target)
    # Discard old results of the search.
    search = state.search
    if search.learned is not None and now >= search.learned + timedelta(seconds=FORGET_WINDOWS * seconds):
        search = search.model_copy(update={"too_few": 0, "enough": 0, "learned": None})
    # Look for a better number. Do not add samplers while some are not ready yet.
    change, are_ready = None, not _differ(ready, state.target)
    if wait > WAIT_PERCENT_MAX and are_ready:
        change = _more(state, bounds, search, now)
    elif wait < WAIT_PERCENT_LOW:
        change = _fewer(state, bounds, search, ready)
    # Keep the number if there is none. With all samplers, the last change is judged, and the speed is
    # remembered.
    if change is None:
        if are_ready:
            speed = search.steps_per_second or state.window.steps_per_second
            judged = {"before": 0, "steps_per_second_needed": None, "steps_per_second": speed}
            search = search.model_copy(update=judged)
        change = Change(state.target, state.message, search)
    # Measure again.
    window = _new_window(sight, change.target, now)
    return state.model_copy(update=change._asdict() | {"window": window})


def _more(state: AutoscaleStatus, bounds: Autoscale, search: AutoscaleSearch, now: datetime) -> Change | None:
    """Returns the number for a learner that waits for long, or None if more samplers do not help."""
    samplers, before = state.target, search.before
    wait, speed = state.window.wait_percent or 0.0, state.window.steps_per_second or 0.0
    waits = f"the learner waited for data {wait:.0f}% of the time with {samplers}"
    # Return to the previous number if the samplers that were added have not helped.
    if 0 < before < samplers and speed < (search.steps_per_second_needed or 0.0):
        message = f"{waits}, and made hardly more steps a second than with {before}"
        return Change(before, message, AutoscaleSearch(enough=before, learned=now))
    # Return to the previous number if too many were removed. Otherwise estimate how many are needed, at
    # most twice as many.
    rise = 100.0 / max(100.0 - wait, 50.0)
    estimate = math.ceil(samplers * rise)
    limit = min(bounds.max, search.enough or bounds.max)
    target = min(before if before > samplers else estimate, limit)
    if target <= samplers:
        return None
    learned = AutoscaleSearch(too_few=max(samplers, search.too_few), enough=search.enough, learned=now)
    if before <= samplers:
        needed = speed + GAIN_MIN * speed * (min(target / samplers, rise) - 1)
        learned = learned.model_copy(update={"before": samplers, "steps_per_second_needed": needed})
    return Change(target, waits, learned)


def _fewer(
    state: AutoscaleStatus, bounds: Autoscale, search: AutoscaleSearch, samplers: int
) -> Change | None:
    """Returns a smaller number for a learner that hardly waits, or None if smaller ones are too few.
    `samplers`: the number of ready ones."""
    wait = state.window.wait_percent or 0.0
    message = f"the learner waited for data only {wait:.0f}% of the time with {samplers}"
    # Forget which numbers were too few if the learner has become slower.
    speed, usual = state.window.steps_per_second or 0.0, search.steps_per_second or 0.0
    if speed < SLOWER * usual:
        search = AutoscaleSearch()
        message += f", and made {speed:.0f} instead of {usual:.0f} steps a second"
    # Remove a tenth, but at most half of the way to a number that was too low.
    step = max(samplers // TENTH, 1)
    target = max(samplers - step, (samplers + search.too_few + 1) // 2, bounds.min)
    if target >= state.target or target >= samplers:
        return None
    tried = {"before": samplers, "steps_per_second_needed": None, "steps_per_second": None}
    return Change(target, message, search.model_copy(update=tried))
