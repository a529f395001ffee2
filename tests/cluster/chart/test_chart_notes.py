"""What helm says after an installation: the first job, and what stays."""

from __future__ import annotations

import shutil
import subprocess
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


def test_the_first_job_pasted_into_a_shell_is_applied_whole(helm: Helm, tmp_path: Path) -> None:
    said = _notes(helm, tmp_path, {})
    start = said.rindex("\n", 0, said.index("apply -f -")) + 1
    pasted = said[start : said.index("EOF\n", start) + len("EOF\n")]
    # What stands for kubectl shows what it is given; a here-document that does not end would be a warning of bash.
    shell = f'kubectl() {{ echo "# $*"; cat; }}\n{pasted}'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# -n default apply -f -\n")
    assert yaml.safe_load(done.stdout) == _job_of_the_readme()


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
