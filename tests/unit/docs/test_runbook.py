"""The runbook has every reason that the code can give, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from docs_pages import DOCS, ROOT

RUNBOOK = (DOCS / "operations" / "runbook.md").read_text()
WORD = re.compile(r"[A-Z][a-z]+[A-Za-z]*|OOMKilled")

OPERATOR = ROOT / "operator" / "rltraining_operator"
TRAINER = ROOT / "trainer_image" / "rltraining_trainer"
WHERE_REASONS_ARE = (
    *("conditions.py", "failures.py", "outcome.py", "plan.py", "refusals.py", "rollup.py", "story.py"),
    *("trouble.py", "local/cluster.py"),
)
"""Modules of the operator that give reasons: each word in CamelCase there is one, or is listed below."""

NO_REASONS = {
    # types and statuses of conditions, and types of events
    *("Complete", "FailureTarget", "Progressing", "Ready", "ReplicaFailure", "SuccessCriteriaMet"),
    *("CheckpointHealthy", "PodScheduled", "PodReadyToStartContainers"),
    *("True", "False", "Unknown", "Normal", "Warning"),
    # values of fields, and kinds of objects
    *("All", "None", "Count", "FailJob", "Ignore", "In", "Bound", "Authorization"),
    *("ConfigMap", "NetworkPolicy", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "PodGroup"),
    *("Secret", "Service"),
    # what kubelets say, which is told in words of ours
    *("ContainerCreating", "CrashLoopBackOff", "PodInitializing", "CreateContainerConfigError"),
    *("ErrImageNeverPull", "ErrImagePull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName"),
    *("RegistryUnavailable", "SignatureValidationFailed"),
}
OF_PODS = {"Evicted", "Preempting", "NodeLost", "LocalClusterError"}
"""Reasons that a pod brings along, which are passed on as they are."""


def in_the_code() -> set[str]:
    operator = {word for name in WHERE_REASONS_ARE for word in _words(OPERATOR / name)} - NO_REASONS
    trainer = {word for path in TRAINER.rglob("*.py") for word in _given(path)}
    groups = yaml.safe_load((ROOT / "charts/rltraining-operator/files/alerts.yaml").read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    return operator | trainer | OF_PODS | alerts


def in_the_runbook() -> set[str]:
    headings = re.findall(r"^### `(\w+)`$", RUNBOOK, re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)` \|", RUNBOOK, re.MULTILINE)
    assert len({*headings, *rows}) == len(headings) + len(rows), "a reason stands in the runbook twice"
    return {*headings, *rows}


def test_every_reason_is_in_the_runbook() -> None:
    missing = in_the_code() - in_the_runbook()
    assert not missing, f"docs/operations/runbook.md does not tell of {sorted(missing)}"


def test_every_reason_in_the_runbook_can_come() -> None:
    invented = in_the_runbook() - in_the_code()
    assert not invented, f"docs/operations/runbook.md tells of what no code gives: {sorted(invented)}"


def test_every_reason_has_what_it_means_and_what_to_do() -> None:
    for section in re.split(r"^### ", RUNBOOK, flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0]
        assert "**Means** " in section, title
        assert "**Do** " in section, title


def _words(path: Path) -> set[str]:
    return {text for node in ast.walk(ast.parse(path.read_text())) if (text := _word(node))}


def _given(path: Path) -> Iterator[str]:
    """Words that a module of the trainer calls a reason: by keyword, as an attribute, or of a condition."""
    for node in ast.walk(ast.parse(path.read_text())):
        values: list[ast.AST] = []
        if isinstance(node, ast.Call):
            values = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            if getattr(node.func, "id", "") == "_checkpoint_condition":
                values.append(node.args[1])
        elif isinstance(node, ast.Assign) and any(
            getattr(name, "id", "") == "reason" for name in node.targets
        ):
            values = [node.value]
        yield from filter(None, map(_word, values))


def _word(node: ast.AST) -> str:
    text = node.value if isinstance(node, ast.Constant) else None
    return text if isinstance(text, str) and WORD.fullmatch(text) else ""
