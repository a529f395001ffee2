"""Counts disruptions in a row. A failure that is caused from outside does not count, up to a limit.

A liveness probe that kills a hanging trainer, or a node that runs out of memory each time, looks
like any other kill from outside. If one member is disrupted again and again while training makes no
progress, further disruptions count as failures, and `backoffLimit` ends the job. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rltraining_api.names import parse_pod_name
from rltraining_api.status import LedgerEntry

from rltraining_operator.failures.pod_failure import FailureKind, PodFailure, classify
from rltraining_operator.observe.observed import Observed
from rltraining_operator.settings import DISRUPTIONS_MAX

STREAKS_MAX = 200
"""Maximum number of streaks in a status. If ten thousand samplers lose their nodes together, the
status must stay small enough to be written. Single disruptions are no streak yet, and this many
real streaks suffice to end the job."""


class DisruptionStreaks:
    """The streaks of disruptions that progress has not ended. `steps`: environment steps so far, as
    far as known."""

    def __init__(self, entries: Iterable[LedgerEntry], steps: int) -> None:
        self._steps = steps
        self._streaks = {
            entry.pod: (entry.disruptions, entry.steps)
            for entry in entries
            if entry.disruptions and steps <= entry.steps
        }
        """Length, and environment steps at the last disruption, by pod."""

    def classify(self, failure: PodFailure, times: int) -> Iterator[tuple[FailureKind, PodFailure, int]]:
        """Classifies `times` failures of a pod, all like this one. Yields each kind with the number of
        failures of this kind. Disruptions that count as failures get a note."""
        kind = classify(failure)
        if kind is not FailureKind.DISRUPTION:
            yield kind, failure, times
            return
        before = self._streaks.get(failure.pod, (0, 0))[0]
        length = before + times
        self._streaks[failure.pod] = length, self._steps
        # After an outage the operator finds several together, and the first of them may not count.
        uncounted = min(max(DISRUPTIONS_MAX - before, 0), times)
        if uncounted:
            yield kind, failure, uncounted
        if uncounted < times:
            note = f"disruption {length} in a row without progress, counted as a failure"
            yield FailureKind.FAILURE, replace(failure, note=note), times - uncounted

    def to_ledger(self, counted: dict[str, LedgerEntry], observed: Observed) -> tuple[LedgerEntry, ...]:
        """Returns the ledger: the counted failures of existing pods, and the longest streaks of
        members, which may be missing."""
        uids = {pod.name: pod.uid for pod in observed.pods}
        kept = {n: streak for n, streak in self._streaks.items() if n in uids or _is_member(n, observed)}
        for name in sorted(kept, key=lambda name: (-kept[name][0], name))[:STREAKS_MAX]:
            length, steps = kept[name]
            entry = counted.get(name) or LedgerEntry(pod=name, uid=uids.get(name, ""))
            counted[name] = entry.model_copy(update={"disruptions": length, "steps": steps})
        return tuple(counted[name] for name in sorted(counted))


def _is_member(name: str, observed: Observed) -> bool:
    found = parse_pod_name(observed.name, name)
    return found is not None and observed.job is not None and found[1] < observed.job.spec.replicas(found[0])
