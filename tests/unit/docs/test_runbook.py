"""The runbook has exactly the reasons that the code can give."""

from __future__ import annotations

import re

import yaml
from docs_pages import DOCS, ROOT

RUNBOOK = (DOCS / "operations" / "runbook.md").read_text()
WORD = re.compile(r'"([A-Z][a-z]+[A-Za-z]*|OOMKilled)"')
GIVEN = re.compile(r'\b(?:reason ?= ?|_condition\("\w+", )"([A-Z]\w+)"')
"""The trainer's ways to give a reason: as a keyword, as a variable, or of a condition."""

OPERATOR = ROOT / "operator" / "rltraining_operator"
TRAINER = ROOT / "trainer_image" / "rltraining_trainer"
WHERE_REASONS_ARE = (
    *("observe/admission.py", "failures/pod_failure.py", "pods/rollout.py", "plan.py", "local/cluster.py"),
    *(f"status/{name}.py" for name in ("blocked", "build", "conditions", "events", "outcome")),
)
"""Modules of the operator that give reasons. Each word in CamelCase there is a reason, or is listed below."""

NO_REASONS = {
    # types and statuses of conditions, and types of events
    *("Complete", "FailureTarget", "Progressing", "Ready", "ReplicaFailure", "SuccessCriteriaMet"),
    *("CheckpointHealthy", "PodScheduled", "PodReadyToStartContainers", "SamplersUpdated"),
    *("True", "False", "Unknown", "Normal", "Warning"),
    # values of fields, and kinds of objects
    *("All", "None", "Count", "FailJob", "Ignore", "In", "Bound", "Authorization"),
    *("ConfigMap", "NetworkPolicy", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "PodGroup"),
    *("Secret", "Service"),
    # kubelet reasons, which the operator rewords
    *("ContainerCreating", "CrashLoopBackOff", "PodInitializing", "CreateContainerConfigError"),
    *("ErrImageNeverPull", "ErrImagePull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName"),
    *("RegistryUnavailable", "SignatureValidationFailed"),
}
OF_PODS = {"Evicted", "Preempting", "NodeLost", "LocalClusterError"}
"""Reasons of pods, which are passed on unchanged."""


def in_the_code() -> set[str]:
    operator = {word for name in WHERE_REASONS_ARE for word in WORD.findall((OPERATOR / name).read_text())}
    trainer = {word for path in TRAINER.rglob("*.py") for word in GIVEN.findall(path.read_text())}
    groups = yaml.safe_load((ROOT / "charts/rltraining-operator/files/alerts.yaml").read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    return operator - NO_REASONS | trainer | OF_PODS | alerts


def in_the_runbook() -> set[str]:
    headings = re.findall(r"^### `(\w+)`$", RUNBOOK, re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)` \|", RUNBOOK, re.MULTILINE)
    assert len({*headings, *rows}) == len(headings) + len(rows), "a reason is in the runbook twice"
    return {*headings, *rows}


def test_the_runbook_has_every_reason_of_the_code_and_no_other() -> None:
    code, runbook = in_the_code(), in_the_runbook()
    assert not code - runbook, f"docs/operations/runbook.md lacks {sorted(code - runbook)}"
    assert not runbook - code, f"no code gives these reasons of the runbook: {sorted(runbook - code)}"
