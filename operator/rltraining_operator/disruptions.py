"""Counts disruptions in a row. A failure that is caused from outside does not count, up to a limit.

A liveness probe that kills a hanging trainer, or a node that runs out of memory each time, looks
like any other kill from outside. If one member is disrupted again and again while training makes no
progress, further disruptions count as failures, and `backoffLimit` ends the job. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rltraining_api.names import parse_pod_name
from rltraining_api.status import LedgerEntry

from rltraining_operator.failures import Death, Verdict, judge_by_nature
from rltraining_operator.observed import Observed
from rltraining_operator.settings import DISRUPTIONS_MAX

ROWS_MAX = 200
"""Maximum number of streaks in a status. If ten thousand samplers lose their nodes together, the
status must stay small enough to be written. Single disruptions are no streak yet, and this many
real streaks suffice to end the job."""


class Rows:
    """The streaks of disruptions that progress has not ended. `steps`: environment steps so far, as
    far as known."""

    def __init__(self, entries: Iterable[LedgerEntry], steps: int) -> None:
        self._steps = steps
        self._rows = {
            entry.pod: (entry.disruptions, entry.steps)
            for entry in entries
            if entry.disruptions and steps <= entry.steps
        }
        """Length, and environment steps at the last disruption, by pod."""

    def judge(self, death: Death, times: int) -> tuple[Verdict, Death]:
        """Classifies `times` failures of a pod, all like this one. Adds a note if their number
        makes them count."""
        verdict = judge_by_nature(death)
        if verdict is not Verdict.DISRUPTION:
            return verdict, death
        length = self._rows.get(death.pod, (0, 0))[0] + times
        self._rows[death.pod] = length, self._steps
        if length <= DISRUPTIONS_MAX:
            return verdict, death
        note = f"disruption {length} in a row without progress, counted as a failure"
        return Verdict.FAILURE, replace(death, note=note)

    def written_into(self, counted: dict[str, LedgerEntry], observed: Observed) -> tuple[LedgerEntry, ...]:
        """Returns the ledger: the counted failures of existing pods, and the longest streaks of
        members, which may be missing."""
        uids = {pod.name: pod.uid for pod in observed.pods}
        kept = {n: row for n, row in self._rows.items() if n in uids or _is_member(n, observed)}
        for name in sorted(kept, key=lambda name: (-kept[name][0], name))[:ROWS_MAX]:
            length, steps = kept[name]
            entry = counted.get(name) or LedgerEntry(pod=name, uid=uids.get(name, ""))
            counted[name] = entry.model_copy(update={"disruptions": length, "steps": steps})
        return tuple(counted[name] for name in sorted(counted))


def _is_member(name: str, observed: Observed) -> bool:
    found = parse_pod_name(observed.name, name)
    return found is not None and observed.job is not None and found[1] < observed.job.spec.replicas(found[0])
