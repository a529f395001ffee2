"""The checks of `make lint` report problems with their lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests import docs_pages
from tests.docs_pages import Command
from tests.lint import (
    chart,
    chart_metadata,
    code,
    commands,
    distributions,
    hashes,
    images,
    monitoring,
    pages,
    vocabulary,
)
from tests.lint.__main__ import report
from tests.lint.problem import Problem


def typed(text: str) -> Iterable[Problem]:
    return commands.wrong_commands([Command("README.md", 7, text)])


def asked(query: str, *, drawn: bool = False) -> Iterator[Problem]:
    return (Problem("alerts", 1, error) for error in monitoring.query_errors(query, drawn=drawn))


def locked(text: str) -> Iterator[Problem]:
    return hashes.wrong_hashes({"requirements/build.txt": text.format(hash="0" * 64)})


TIED = {
    "crds/pyproject.toml": '[project]\nversion = "0.1.0"\ndependencies = []\n',
    "client/pyproject.toml": '[project]\nversion = "0.1.0"\ndependencies = ["rltraining-api=={}"]\n',
}
"""Two distributions; the second requires a version of the first."""


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        (pages.broken_links({"README.md": "# A\n\n[x](no.md)"}), "README.md:3: there is no no.md"),
        (typed("kubectl rltrain logs maze --tial 5"), "README.md:7: rltrain refuses it: No such option: --tial"),
        (typed("make lint VENV=x tests"), "README.md:7: the Makefile has no tests"),
        (typed("helm upgrade a b --set log.level=info --set a.b=1"), "the chart has no value a.b"),
        (typed("kubectl wait rlj/a --for=condition=Raedy"), "jobs have no condition Raedy"),
        (typed("rltrain --version && rltrain get && make lint"), ""),
        (images.wrong_images({"operator": "FROM x\nUSER root\n"}), "operator/Dockerfile:2: this should be USER 65532"),
        (locked("uv==0.0.1 \\\n    --hash=sha256:{hash}\n"), "requirements/build.txt:1: constraints.txt has uv=="),
        (locked("six==1.17.0\nuv==0.0.1 \\\n    --hash=sha256:{hash}\n"), "build.txt:1: not a version with hashes: six=="),
        (locked("--index-url x\n# uv\n"), "requirements/build.txt:1: not a version with hashes: --index-url x"),
        (locked("# none\n"), "requirements/build.txt:1: no version that satisfies hatchling=="),
        (
            distributions.differing_versions({path: text.format("0.1.0") for path, text in TIED.items()}),
            "",
        ),
        (
            distributions.differing_versions({path: text.format("0.0.9") for path, text in TIED.items()}),
            "client/pyproject.toml:3: this should be ==0.1.0",
        ),
        (chart.wrong_defaults("\n| `replicaCount` | 2 | pods |\n"), "docs/install.md:2: replicaCount is 1 by default"),
        (
            chart_metadata.wrong_production_values("\n# Two.\nreplicaCount: 2\nlog:\n  level: debug\n"),
            "values-production.yaml:5: log.level has no reason",
        ),
        (
            chart_metadata.wrong_production_values("\n# Alone.\nreplicaCount: 1\n"),
            "values-production.yaml:3: replicaCount has its default",
        ),
        (
            chart_metadata.wrong_annotations({"artifacthub.io/crds": "[{kind: Job, version: v1alpha1, name: x}]"}),
            "kind is RLTrainingJob in files/crd.yaml, not Job",
        ),
        (asked('up{job="rltraining-operator"}'), ""),
        (asked('rltraining_leeder{job="rltraining-operator"}'), "no program exports rltraining_leeder"),
        (asked('rltraining_leader{job="rltraining-operator",pot="a"}'), "has no label ['pot']"),
        (asked("rltraining_leader"), "is not of this operator alone"),
        (asked("rltraining_learner_updates_total", drawn=True), "is not of one run alone"),
        (asked("max by (pot) (rltraining_learner_updates_total)"), "the labels ['pot'], by which it groups"),
        (asked('sum(rltraining_dataflow_queued{item="gradients"})'), "take the maximum over learners"),
    ],
)  # fmt: skip
def test_a_problem_is_reported_with_its_line(problems: Iterable[Problem], expected: str) -> None:
    found = list(map(str, problems))
    assert any(expected in line for line in found) if expected else not found, found


def test_a_long_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    for name, lines in (("long.py", 401), ("short.py", 400)):
        (tmp_path / "client" / name).write_text("\n" * lines)
    assert [each.path for each in code.long_files(tmp_path)] == ["client/long.py"]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.md", "# A\n\nThe run goes\non here.\n", ["a.md:3: private phrase 'goes on': write continues, or resumes"]),
        ("docs/a.md", "This is where the time goes on your machine.\n", []),
        ("docs/a.md", "An agent learns. The learner says nothing.\n", ["docs/a.md:1: private phrase 'learner says'"]),
        ("operator/a.py", '"""Adds one.\n\nBegins anew."""\n', ["operator/a.py:3: private phrase 'anew'"]),
        ("operator/a.py", "x = 1  # the run goes\n# on\n", ["operator/a.py:1: private phrase 'goes on'"]),
        ("operator/a.py", 'm = (\n    f"{n} goes "\n    "on"\n)\n', ["operator/a.py:2: private phrase 'goes on'"]),
        ("operator/a.py", "anew = nobody + 1\n", []),
        ("charts/x/files/crd.yaml", "message: create it anew\n", ["charts/x/files/crd.yaml:1: private phrase 'anew'"]),
        ("operator/Dockerfile", "# in layers of its own\n", ["operator/Dockerfile:1: private phrase 'of its own'"]),
        ("Makefile", "# nobody\n", ["Makefile:1: private phrase 'nobody'"]),
        ("uv.lock", "nobody\n", []),
    ],
)  # fmt: skip
def test_a_private_phrase_is_reported_with_its_replacement(
    tmp_path: Path, path: str, text: str, expected: list[str]
) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    found = list(map(str, vocabulary.private_phrases(tmp_path)))
    assert len(found) == len(expected), found
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True)), found


def test_problems_are_printed_in_order_and_end_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert report([list]) == 0
    assert report([lambda: [Problem("b", 2, "y"), Problem("a", 1, "x")]]) == 1
    assert capsys.readouterr().out == "a:1: x\nb:2: y\n"


def test_the_checks_find_what_they_look_at() -> None:
    """A check that inspects nothing would find no problem."""
    texts = docs_pages.pages().values()
    assert sum(text.count("](") for text in texts) > 100
    assert len(docs_pages.commands()) > 100
    assert len(monitoring.alerts()) > 5
    assert len(monitoring.panels()) > 20
