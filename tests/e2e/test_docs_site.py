"""Builds the documentation's site and checks its content."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def built(place: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command of `make docs` in a folder with an mkdocs.yml."""
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


def test_the_site_is_built_and_holds_what_it_promises(tmp_path: Path) -> None:
    """A warning is an error. One test, so that the site is built once."""
    done = built(ROOT, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout

    def page(name: str) -> str:
        return (tmp_path / name / "index.html").read_text()

    # The reference has every field, with its default if the default is the same for all tasks.
    algorithms = page("reference/algorithms")
    assert 'id="spec.algorithm.dqnApex.replay"' in algorithms
    row = algorithms[algorithms.index("<code>explorationAlpha</code>") :]
    assert "<code>7" in row[: row.index("</tr>")]
    assert 'id="spec.runPolicy.podFailurePolicy"' in page("reference/job")
    assert 'id="status.progress"' in page("reference/status")

    assert "<code>clipRangeSchedule</code>" in page("defaults")
    for name in (
        "defaults",
        "reference/algorithms",
        "reference/job",
        "reference/status",
        "reference/commands",
    ):
        assert "source of this page" not in page(name), "what is for readers of the file"

    # The reference has every command and the Python classes.
    for name in ("run", "evaluate", "submit"):
        assert f"Usage: rltrain {name}" in page("reference/commands")
    python = page("reference/python")
    assert "rltraining.sdk.client.RLTrainingClient.wait" in python
    assert "rltraining_trainer.world.world.World.call" not in python  # Members has this method
    assert "rltraining_trainer.world.members.Members.call" in python

    # Formulas are displayed without a script.
    impala = page("impala")
    assert impala.count("<math") == 4
    assert "$$" not in impala

    # Links to files of the repository lead to their text.
    assert "trainer_image/rltraining_trainer/algorithms/vtrace.py" in impala
    assert "_check_shapes" in page("source/trainer_image/rltraining_trainer/algorithms/vtrace.py")

    # Pages load nothing from other servers, except Mermaid, which the theme loads for pages with a diagram.
    for text in (page(""), impala):
        assert "fonts.g" not in text
        assert 'src="http' not in text
        assert '<link rel="stylesheet" href="http' not in text
