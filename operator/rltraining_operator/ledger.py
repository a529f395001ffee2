"""Counting ends exactly: each bad end of a pod or container once, none lost, across passes and operator restarts.

What is counted already stands in the status: per pod with which something has happened a `LedgerEntry`, and per role
the indices of the pods that are there (`members`), by whose absence a vanished pod is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rltraining_api.failure_policy import PodFailurePolicy
from rltraining_api.names import ROLES, Role, pod_name
from rltraining_api.status import LedgerEntry

from rltraining_operator.failures import Death, Verdict, judge
from rltraining_operator.observed import Observed, Pod


@dataclass(frozen=True)
class Count:
    """`times` ends of one pod that nobody has counted yet, all judged by the latest of them."""

    role: Role
    death: Death
    times: int
    verdict: Verdict


@dataclass(frozen=True)
class Tally:
    """What this pass has to add to the status."""

    counts: tuple[Count, ...]
    ledger: tuple[LedgerEntry, ...]

    def total(self, *verdicts: Verdict) -> int:
        """Ends so judged."""
        return sum(count.times for count in self.counts if count.verdict in verdicts)

    def restarts(self, role: Role) -> int:
        """Ends in a role."""
        return sum(count.times for count in self.counts if count.role == role)

    def latest(self, verdict: Verdict) -> Death | None:
        """The last of the ends so judged."""
        return next((count.death for count in reversed(self.counts) if count.verdict is verdict), None)


def tally(observed: Observed, policy: PodFailurePolicy | None) -> Tally:
    """Everything that has ended badly and is not counted yet."""
    entries = {entry.pod: entry for entry in observed.status.ledger}
    counts: list[Count] = []
    ledger: list[LedgerEntry] = []
    for pod in observed.pods:
        entry = entries.get(pod.name)
        if entry is None or entry.uid != pod.uid:
            entry = LedgerEntry(pod=pod.name, uid=pod.uid)
        count = _count(pod, entry, policy)
        if count is not None:
            counts.append(count)
        entry = LedgerEntry(
            pod=pod.name,
            uid=pod.uid,
            restarts=max(entry.restarts, pod.deaths),
            ended=entry.ended or pod.failed,
        )
        if entry.restarts or entry.ended:
            ledger.append(entry)
    counts += _vanished(observed, {entry.pod for entry in observed.status.ledger if entry.ended}, policy)
    return Tally(tuple(counts), tuple(ledger))


def _count(pod: Pod, entry: LedgerEntry, policy: PodFailurePolicy | None) -> Count | None:
    """The ends of a pod that is there. A pod that failed because its containers did has ended once, not twice."""
    death, times = None, pod.deaths - entry.restarts
    if times > 0 and (end := pod.newest_death) is not None:
        death = Death.of_container(pod, end)
    elif pod.failed and not entry.ended and not pod.deleting:
        death, times = Death.of_pod(pod), 1
    return Count(pod.role, death, times, judge(death, policy)) if death else None


def _vanished(observed: Observed, ended: set[str], policy: PodFailurePolicy | None) -> Iterable[Count]:
    """Members that are gone, or going, without our doing; those that had failed before are counted already."""
    for role in ROLES:
        present = {pod.index for pod in observed.role(role) if not pod.deleting}
        going = {pod.index: pod for pod in observed.role(role) if pod.deleting}
        for index in parse_ranges(getattr(observed.status, role).members):
            name = pod_name(observed.name, role, index)
            if index not in present and name not in ended:
                death = Death.of_pod(going[index]) if index in going else Death(name, disrupted=True)
                yield Count(role, death, 1, judge(death, policy))


def parse_ranges(text: str) -> list[int]:
    """`0-2,5` is 0, 1, 2, 5."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def format_ranges(numbers: Iterable[int]) -> str:
    """0, 1, 2, 5 is `0-2,5`."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
