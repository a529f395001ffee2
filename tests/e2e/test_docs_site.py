"""The documentation's site is built, and holds what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does; strict: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = built(ROOT, folder)
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout
    return folder


def built(place: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` runs, in a place with an mkdocs.yml."""
    options = re.findall(r"^\t\$\(MKDOCS\) build(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(options) == 1
    return subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", *options[0].split(), "--site-dir", folder],
        cwd=place,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    config = f"INHERIT: {ROOT / 'mkdocs.yml'}\nnav: [index.md]\nhooks: []\nplugins: []\nextra_css: []\n"
    (tmp_path / "mkdocs.yml").write_text(config)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\n[nowhere](nowhere.md), [below](#nothing)\n")
    done = built(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert done.stdout.count("WARNING") == 2, done.stdout


def page(site: Path, name: str) -> str:
    return (site / name / "index.html").read_text()


def test_the_reference_has_every_field_with_its_default(site: Path) -> None:
    algorithms = page(site, "reference/algorithms")
    assert 'id="spec.algorithm.dqnApex.replay"' in algorithms
    row = algorithms[algorithms.index("<code>unrollLength</code>") :]
    assert "<code>20</code>" in row[: row.index("</tr>")]
    assert 'id="spec.runPolicy.podFailurePolicy"' in page(site, "reference/job")
    assert 'id="status.progress"' in page(site, "reference/status")


def test_the_reference_has_every_command_and_the_python_classes(site: Path) -> None:
    commands = page(site, "reference/commands")
    for name in ("run", "evaluate", "submit"):
        assert f"Usage: rltrain {name}" in commands
    python = page(site, "reference/python")
    assert "rltraining.sdk.client.RLTrainingClient.wait" in python
    assert "rltraining_trainer.world.world.World.call" not in python  # it is Members that has it
    assert "rltraining_trainer.world.members.Members.call" in python


def test_formulas_need_no_script_to_be_shown(site: Path) -> None:
    impala = page(site, "impala")
    assert impala.count("<math") == 3
    assert "$$" not in impala


def test_links_to_files_of_the_repository_lead_to_their_text(site: Path) -> None:
    assert "trainer_image/rltraining_trainer/algorithms/vtrace.py" in page(site, "impala")
    source = page(site, "source/trainer_image/rltraining_trainer/algorithms/vtrace.py")
    assert "_check_shapes" in source


def test_nothing_is_fetched_from_elsewhere_to_show_a_page(site: Path) -> None:
    """But for Mermaid, which its theme loads where a page has a diagram."""
    for path in (site / "index.html", site / "impala" / "index.html"):
        text = path.read_text()
        assert "fonts.g" not in text
        assert 'src="http' not in text
        assert '<link rel="stylesheet" href="http' not in text
