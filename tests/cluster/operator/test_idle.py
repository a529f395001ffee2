"""An operator that has nothing to do writes nothing, also after a restart."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from operators import CRD, names, operator, submit, until

from tests.cluster.api import Cluster
from tests.soak import SOAK

NAMESPACE = "idle"
JOBS = [f"job-{number:02d}" for number in range(20)]
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
RESYNCS = 5
"""Lists of all children that are awaited after the restart. All passes after the first three of them are over by then."""
OBSERVED_SECONDS = 120.0 if SOAK > 1 else 0.0
"""`make soak` observes for two minutes, whatever the number of resyncs."""
QUIET_SECONDS = 5.0
CONFIG = {
    "namespaces": [NAMESPACE],
    "resyncSeconds": 2,
    "learnerEviction": "Refuse",
    "leaderElection": {"leaseNamespace": NAMESPACE},
}
READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
NOTHING_DUE = {"status": {"progressTime": "2999-01-01T00:00:00Z"}}
"""Otherwise a job that makes no progress for three minutes is reported as stalled, which is a write."""

pytestmark = pytest.mark.timeout(500)


@pytest.fixture
def cluster(api_server: Cluster) -> Iterator[Cluster]:
    api_server.need_local("reads the audit log")
    api_server.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    api_server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    yield api_server
    api_server.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def requests(cluster: Cluster, since: datetime) -> list[dict[str, Any]]:
    """All requests that concern the namespace. Without a controller manager and a kubelet they are the operator's and those
    of this test."""
    return [
        entry
        for entry in cluster.audit()
        if (entry.get("objectRef") or {}).get("namespace") == NAMESPACE
        and datetime.fromisoformat(entry["requestReceivedTimestamp"]) >= since
    ]


def writes(cluster: Cluster, since: datetime) -> Counter[str]:
    """Writes by verb and resource."""
    return Counter(
        f"{entry['verb']} {entry['objectRef']['resource']}"
        for entry in requests(cluster, since)
        if entry["verb"] in WRITES
    )


def without_leases(counted: Counter[str]) -> dict[str, int]:
    """The leader renews its Lease every few seconds by design: its writes are counted apart."""
    return {what: times for what, times in counted.items() if not what.endswith(" leases")}


def is_quiet(cluster: Cluster) -> bool:
    began = datetime.fromtimestamp(time.time() - QUIET_SECONDS, UTC)
    return not without_leases(writes(cluster, began))


def set_status(cluster: Cluster, kind: str, objects: list[str], patch: dict[str, Any]) -> None:
    options = ("--subresource=status", "--type=merge", f"--patch={json.dumps(patch)}")
    cluster.kubectl("patch", kind, *objects, "-n", NAMESPACE, *options)


def test_an_operator_writes_nothing_after_its_restart(cluster: Cluster, tmp_path: Path) -> None:
    log, config = tmp_path / "log", tmp_path / "config.yaml"
    config.write_text(json.dumps(CONFIG))

    # Let an operator make everything that jobs have, the learners' disruption budgets too.
    with operator(cluster, log, f"--config={config}"):
        submit(cluster, NAMESPACE, *JOBS)
        until(lambda: len(names(cluster, "pods", NAMESPACE)) == 3 * len(JOBS), log)
        set_status(cluster, "pods", [f"{job}-learner-0" for job in JOBS], READY)
        until(lambda: len(names(cluster, "poddisruptionbudgets", NAMESPACE)) == len(JOBS), log)
        set_status(cluster, "rlj", JOBS, NOTHING_DUE)
        until(lambda: is_quiet(cluster), log)

    # Restart the operator, and count its writes until it has reconciled all jobs several times.
    restarted = datetime.now(UTC)

    def resyncs() -> int:
        return sum(
            entry["verb"] == "list" and entry["objectRef"]["resource"] == "services"
            for entry in requests(cluster, restarted)
        )

    with operator(cluster, log, f"--config={config}"):
        until(lambda: resyncs() >= RESYNCS, log)
        time.sleep(max(0.0, OBSERVED_SECONDS - (datetime.now(UTC) - restarted).total_seconds()))
        counted = writes(cluster, restarted)
    assert without_leases(counted) == {}, f"after {resyncs()} resyncs"
    assert counted.keys() - without_leases(counted).keys(), "the operator led"
