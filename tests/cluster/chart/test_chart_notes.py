"""helm's notes after an installation: the first job, and the objects that an uninstallation leaves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from helm import CHART, ROOT, Helm, Values

DIGEST = f"sha256:{'1' * 64}"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {
                "watchNamespaces": ["a", "b"],
                "crds": {"install": False},
                "jobs": {"networkPolicy": {"enabled": False}},
                "replicaCount": 2,
            },
            [
                *("in a, b", "kubectl -n a apply -f -", "is not part of this release"),
                *("WARNING: jobs.networkPolicy.enabled is false", "podDisruptionBudget.enabled=true"),
            ],
        ),
        ({"metrics": {"podMonitor": {"enabled": True}}}, ["WARNING: metrics.podMonitor.enabled is true"]),
        (
            {"metrics": {"serviceMonitor": {"enabled": True}}},
            ["WARNING: metrics.serviceMonitor.enabled is true", "networkPolicy.metricsFrom"],
        ),
        (
            {"image": {"registry": "r.example.com", "digest": DIGEST}, "trainerImage": {"tag": "old"}},
            [f" r.example.com/rltraining-operator@{DIGEST}\n", " rltraining-trainer:old\n"],
        ),
    ],
)
def test_notes_name_the_first_job_and_what_to_change(
    helm: Helm, tmp_path: Path, values: Values, words: list[str]
) -> None:
    said = notes(helm, tmp_path, values)
    assert all(word in said for word in words), said


def test_the_first_job_pasted_into_a_shell_is_applied_whole(helm: Helm, tmp_path: Path) -> None:
    said = notes(helm, tmp_path, {})
    start = said.rindex("\n", 0, said.index("apply -f -")) + 1
    pasted = said[start : said.index("EOF\n", start) + len("EOF\n")]
    # The kubectl stub prints its arguments and input. bash warns about an unterminated here-document.
    shell = f'kubectl() {{ echo "# $*"; cat; }}\n{pasted}'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# -n default apply -f -\n")
    readme = (ROOT / "README.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    assert yaml.safe_load(done.stdout) == yaml.safe_load(readme)


def notes(helm: Helm, folder: Path, values: Values) -> str:
    """Renders the notes as the data of a ConfigMap, because helm shows them only during an installation."""
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
