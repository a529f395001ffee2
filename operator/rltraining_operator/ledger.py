"""Counts failures exactly: each failure of a pod or container once, none lost, across passes and
operator restarts.

The status records the counted failures: a `LedgerEntry` for each restarted, failed or disrupted
pod, and for each role the `indices` of the existing pods, from which a vanished pod is detected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rltraining_api.failure_policy import PodFailurePolicy
from rltraining_api.names import ROLES, Role, pod_name
from rltraining_api.status import LedgerEntry

from rltraining_operator.disruptions import Rows
from rltraining_operator.failures import Death, Verdict, judge_by_rules
from rltraining_operator.members import known_steps, silent_end
from rltraining_operator.observed import Observed, Pod


@dataclass(frozen=True)
class Count:
    """`times` uncounted failures of one pod, all classified by the latest of them."""

    role: Role
    death: Death
    times: int
    verdict: Verdict


@dataclass(frozen=True)
class Tally:
    """The additions of this pass to the status."""

    counts: tuple[Count, ...]
    ledger: tuple[LedgerEntry, ...]

    def total(self, *verdicts: Verdict) -> int:
        """Returns the number of failures of these kinds."""
        return sum(count.times for count in self.counts if count.verdict in verdicts)

    def restarts(self, role: Role) -> int:
        """Returns the number of failures in a role."""
        return sum(count.times for count in self.counts if count.role == role)

    def latest(self, verdict: Verdict) -> Death | None:
        """Returns the newest failure of this kind, or None."""
        return next((count.death for count in reversed(self.counts) if count.verdict is verdict), None)


def tally(observed: Observed, policy: PodFailurePolicy | None, now: datetime) -> Tally:
    """Counts all failures that are not counted yet."""
    # Read the counted failures from the status.
    entries = {entry.pod: entry for entry in observed.status.ledger}
    rows = Rows(entries.values(), known_steps(observed))
    counts: list[Count] = []
    counted: dict[str, LedgerEntry] = {}
    # Count new failures of existing pods.
    for pod in observed.pods:
        entry = entries.get(pod.name)
        if entry is None or entry.uid != pod.uid:
            entry = LedgerEntry(pod=pod.name, uid=pod.uid)
        silent = silent_end(pod, observed, now)
        for death, times in _new_ends(pod, entry, silent):
            counts.append(_count(pod.role, death, times, rows, policy))
        restarts = max(entry.restarts, pod.deaths)
        ended = entry.ended or pod.failed or silent is not None
        if restarts or ended:
            counted[pod.name] = LedgerEntry(pod=pod.name, uid=pod.uid, restarts=restarts, ended=ended)
    # Count pods that vanished without a deletion by the operator.
    for role, death in _vanished(observed, {entry.pod for entry in entries.values() if entry.ended}):
        counts.append(_count(role, death, 1, rows, policy))
    return Tally(tuple(counts), rows.written_into(counted, observed))


def _count(role: Role, death: Death, times: int, rows: Rows, policy: PodFailurePolicy | None) -> Count:
    """Classifies new failures. The user's rules take precedence, without a limit on disruptions."""
    ruled = judge_by_rules(death, policy)
    verdict, death = (ruled, death) if ruled else rows.judge(death, times)
    return Count(role, death, times, verdict)


def _new_ends(pod: Pod, entry: LedgerEntry, silent: Death | None) -> Iterable[tuple[Death, int]]:
    """Yields the failures of an existing pod that are not counted yet, with their number. A pod
    that failed because its containers failed counts once, not twice."""
    times = pod.deaths - entry.restarts
    death = _death_of_containers(pod) if times > 0 else None
    if death is not None:
        yield death, times
    if entry.ended:
        return
    if pod.failed:
        if death is None and not pod.deleting:
            yield Death.of_pod(pod), 1
    elif silent is not None:
        yield silent, 1


def _death_of_containers(pod: Pod) -> Death | None:
    """Returns the newest known failure of a container, or one known only from a restart, as after
    an operator outage. Returns None if all ended containers have succeeded, as sidecars do."""
    if (end := pod.newest_death) is not None:
        return Death.of_container(pod, end)
    container = pod.unexplained_restart
    return Death.of_restart(pod, container.name) if container is not None else None


def _vanished(observed: Observed, ended: set[str]) -> Iterable[tuple[Role, Death]]:
    """Yields members that are gone or being deleted, but not by the operator. Members that had
    failed before are counted already."""
    for role in ROLES:
        members = parse_ranges(observed.status.of_role(role).indices)
        present = {pod.index for pod in observed.role(role) if not pod.deleting}
        if present.issuperset(members):
            continue
        going = {pod.index: pod for pod in observed.role(role) if pod.deleting}
        for index in members:
            name = pod_name(observed.name, role, index)
            if index not in present and name not in ended:
                yield role, Death.of_pod(going[index]) if index in going else Death(name, disrupted=True)


def parse_ranges(text: str) -> list[int]:
    """Returns 0, 1, 2, 5 for `0-2,5`."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def format_ranges(numbers: Iterable[int]) -> str:
    """Returns `0-2,5` for 0, 1, 2, 5."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
