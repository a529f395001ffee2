"""Counts failures exactly: each failure of a pod or container once, none lost, across passes and
operator restarts.

The status records the counted failures: a `LedgerEntry` for each restarted, failed or disrupted
pod, and for each role the `indices` of the existing pods, from which a vanished pod is detected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from rltraining_api.failure_policy import PodFailurePolicy
from rltraining_api.names import ROLES, Role, pod_name
from rltraining_api.status import LedgerEntry

from rltraining_operator.failures.disruptions import DisruptionStreaks
from rltraining_operator.failures.endings import exited_without_report, known_steps
from rltraining_operator.failures.pod_failure import FailureKind, PodFailure, classify_by_rules
from rltraining_operator.observe.observed import Observed, Pod


@dataclass(frozen=True)
class FailureCount:
    """`times` uncounted failures of one pod, all classified by the latest of them."""

    role: Role
    failure: PodFailure
    times: int
    kind: FailureKind


@dataclass(frozen=True)
class FailureCounts:
    """The additions of this pass to the status."""

    failures: tuple[FailureCount, ...]
    ledger: tuple[LedgerEntry, ...]

    def total(self, *kinds: FailureKind) -> int:
        """Returns the number of failures of these kinds."""
        return sum(count.times for count in self.failures if count.kind in kinds)

    def restarts(self, role: Role) -> int:
        """Returns the number of failures in a role."""
        return sum(count.times for count in self.failures if count.role == role)

    def latest(self, kind: FailureKind) -> PodFailure | None:
        """Returns the newest failure of this kind, or None."""
        return next((count.failure for count in reversed(self.failures) if count.kind is kind), None)


def count_failures(observed: Observed, policy: PodFailurePolicy | None, now: datetime) -> FailureCounts:
    """Counts all failures that are not counted yet."""
    # Read the counted failures from the status.
    entries = {entry.pod: entry for entry in observed.status.ledger}
    streaks = DisruptionStreaks(entries.values(), known_steps(observed))
    counts: list[FailureCount] = []
    counted: dict[str, LedgerEntry] = {}
    # Count new failures of existing pods.
    for pod in observed.pods:
        entry = entries.get(pod.name)
        if entry is None or entry.uid != pod.uid:
            entry = LedgerEntry(pod=pod.name, uid=pod.uid)
        silent = exited_without_report(pod, observed, now)
        for failure, times in _new_ends(pod, entry, silent):
            counts += _count(pod.role, failure, times, streaks, policy)
        restarts = max(entry.restarts, pod.failures)
        ended = entry.ended or pod.failed or silent is not None
        if restarts or ended:
            counted[pod.name] = LedgerEntry(pod=pod.name, uid=pod.uid, restarts=restarts, ended=ended)
    # Count pods that vanished without a deletion by the operator.
    for role, failure in _vanished(observed, {entry.pod for entry in entries.values() if entry.ended}):
        counts += _count(role, failure, 1, streaks, policy)
    return FailureCounts(tuple(counts), streaks.to_ledger(counted, observed))


def _count(
    role: Role, failure: PodFailure, times: int, streaks: DisruptionStreaks, policy: PodFailurePolicy | None
) -> Iterator[FailureCount]:
    """Classifies new failures. The user's rules take precedence, without a limit on disruptions."""
    if (ruled := classify_by_rules(failure, policy)) is not None:
        yield FailureCount(role, failure, times, ruled)
        return
    for kind, classified, number in streaks.classify(failure, times):
        yield FailureCount(role, classified, number, kind)


def _new_ends(pod: Pod, entry: LedgerEntry, silent: PodFailure | None) -> Iterable[tuple[PodFailure, int]]:
    """Yields the failures of an existing pod that are not counted yet, with their number. A pod
    that failed because its containers failed counts once, not twice."""
    times = pod.failures - entry.restarts
    failure = _container_failure(pod) if times > 0 else None
    if failure is not None:
        yield failure, times
    if entry.ended:
        return
    if pod.failed:
        if failure is None and not pod.deleting:
            yield PodFailure.of_pod(pod), 1
    elif silent is not None:
        yield silent, 1


def _container_failure(pod: Pod) -> PodFailure | None:
    """Returns the newest known failure of a container, or one known only from a restart, as after
    an operator outage. Returns None if all ended containers have succeeded, as sidecars do."""
    if (end := pod.newest_failure) is not None:
        return PodFailure.of_container(pod, end)
    container = pod.unexplained_restart
    return PodFailure.of_restart(pod, container.name) if container is not None else None


def _vanished(observed: Observed, ended: set[str]) -> Iterable[tuple[Role, PodFailure]]:
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
                pod = going.get(index)
                yield role, PodFailure.of_pod(pod) if pod else PodFailure(name, disrupted=True)


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
