"""What helm says after an installation: the first job, and what stays."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm import CHART, ROOT, Helm, Values


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {},
            [
                "in all namespaces",
                "kubectl -n default apply -f -",
                "kubectl delete crd rltrainingjobs.rltraining.dev",
            ],
        ),
        ({"watchNamespaces": ["a", "b"]}, ["in a, b", "kubectl -n a apply -f -"]),
        ({"crds": {"install": False}}, ["is not part of this release"]),
        ({"jobs": {"networkPolicy": {"enabled": False}}}, ["WARNING: jobs.networkPolicy.enabled is false"]),
        ({"metrics": {"podMonitor": {"enabled": True}}}, ["WARNING: metrics.podMonitor.enabled is true"]),
        ({"replicaCount": 2}, ["podDisruptionBudget.enabled=true"]),
    ],
)
def test_notes_tell_the_first_job(
    helm: Helm, tmp_path: Path, values: dict[str, Any], words: list[str]
) -> None:
    said = _notes(helm, tmp_path, values)
    for word in words:
        assert word in said
    start, end = said.index("apply -f - <<'EOF'") + len("apply -f - <<'EOF'"), said.index("\n  EOF")
    job = yaml.safe_load(said[start:end])
    assert job == _job_of_the_readme()


def _job_of_the_readme() -> dict[str, Any]:
    text = (ROOT / "README.md").read_text()
    return yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])


def _notes(helm: Helm, folder: Path, values: Values) -> str:
    """The notes, rendered as the data of a ConfigMap: helm shows them only where it installs."""
    copy = folder / "chart"
    shutil.copytree(CHART, copy)
    source = copy / "templates" / "NOTES.txt"
    text = source.read_text()
    source.unlink()
    (copy / "templates" / "_notes.tpl").write_text('{{- define "notes" -}}\n' + text + "{{- end -}}\n")
    (copy / "templates" / "notes.yaml").write_text(
        'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\ndata:\n  text: {{ include "notes" . | toJson }}\n'
    )
    return helm.render(values, chart=copy).one("ConfigMap", "notes")["data"]["text"]
