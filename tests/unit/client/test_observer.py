"""Pods as users see them in kubectl. The raw pods are as written by a kubelet."""

from __future__ import annotations

from typing import Any

import pytest
from rltraining.snapshot import PodRow, pod_row
from rltraining_operator.observe.observed import Pod

RUNNING = {"running": {}}
KILLED = {"terminated": {"exitCode": 137, "reason": "Error"}}
WORDS = '{"reason": "UserCodeError", "message": "it raised\\nTraceback"}'
RAISED = {"terminated": {"exitCode": 65, "message": WORDS}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 2s"}}
DELETED = {"deletionTimestamp": "2026-11-21T01:16:00Z"}


def pod(
    state: dict[str, Any], phase: str = "Running", ready: bool = False, metadata: Any = None, **rest: Any
) -> Pod:
    conditions = [{"type": "Ready", "status": str(ready)}]
    statuses = [{"name": "trainer", "state": state, **rest}]
    status = {"phase": phase, "conditions": conditions, "containerStatuses": statuses}
    return Pod({"metadata": {"name": "p", "labels": {}, **(metadata or {})}, "status": status})


@pytest.mark.parametrize(
    ("raw", "row"),
    [
        (Pod({"metadata": {"name": "p"}}), PodRow("p", "Pending", False, 0, "")),
        (pod(RUNNING, ready=True), PodRow("p", "Running", True, 0, "")),
        (pod(RUNNING, ready=True, restartCount=2, lastState=KILLED), PodRow("p", "Running", True, 2, "")),
        (pod(RUNNING, restartCount=1, lastState=KILLED), PodRow("p", "Running", False, 1, "exit code 137")),
        (
            pod(BACK_OFF, restartCount=3, lastState=RAISED),
            PodRow("p", "CrashLoopBackOff", False, 3, "back-off 2s; exit code 65: it raised"),
        ),
        (pod(RUNNING, ready=True, metadata=DELETED), PodRow("p", "Terminating", False, 0, "")),
        (pod({"terminated": {"exitCode": 0}}, phase="Succeeded"), PodRow("p", "Succeeded", False, 0, "")),
    ],
)
def test_pod_row(raw: Pod, row: PodRow) -> None:
    assert pod_row(raw) == row
