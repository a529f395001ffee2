"""The chart's README has every value, and the published chart has the addresses of its publisher."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_files import CHART, chart, values

from charts import readme
from charts.publish import publish

REGISTRY = "registry.example.com/team"
SOURCE = "https://example.com/rltraining"
VERSION = chart()["version"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(REGISTRY, SOURCE, tmp_path_factory.mktemp("published"))


def test_the_readme_has_every_value_with_its_default_and_a_description() -> None:
    tree: dict[str, Any] = {}
    for value in readme.values():
        assert value.description, f"{value.name} has no description"
        *parents, last = value.name.split(".")
        node = tree
        for parent in parents:
            node = node[parent]
        node[last] = json.loads(value.default) if value.default else {}
    assert tree == values()


def test_the_published_chart_names_the_repository_and_the_images(published: Path) -> None:
    about = yaml.safe_load((published / "Chart.yaml").read_text())
    assert (about["home"], about["sources"]) == (SOURCE, [SOURCE])
    assert about["icon"] == f"{SOURCE}/raw/v{VERSION}/charts/rltraining-operator/icon.svg"
    images = yaml.safe_load(about["annotations"]["artifacthub.io/images"])
    names = [f"{REGISTRY}/rltraining-{image}:{VERSION}" for image in ("operator", "trainer")]
    assert [image["image"] for image in images] == names
    links = yaml.safe_load(about["annotations"]["artifacthub.io/links"])
    assert [link["name"] for link in links] == ["documentation", "support"]
    # Nothing else is changed.
    assert {key: about[key] for key in chart() if key != "annotations"} | {"annotations": None} == chart() | {
        "annotations": None
    }
    assert chart()["annotations"].items() <= about["annotations"].items()


def test_the_published_chart_pulls_the_published_images(published: Path) -> None:
    changed = yaml.safe_load((published / "values.yaml").read_text())
    for image in ("image", "trainerImage"):
        assert changed[image].pop("registry") == REGISTRY
    expected = yaml.safe_load((CHART / "values.yaml").read_text())
    for image in ("image", "trainerImage"):
        expected[image].pop("registry")
    assert changed == expected


def test_the_published_readme_needs_no_clone(published: Path) -> None:
    text = (published / "README.md").read_text()
    assert f"oci://{REGISTRY}/charts/rltraining-operator --version {VERSION}" in text
    assert "$REGISTRY" not in text
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links
    assert all(link.startswith(f"{SOURCE}/blob/v{VERSION}/docs/") or PRODUCTION in link for link in links), (
        links
    )
    assert f"--values {SOURCE}/raw/v{VERSION}/charts/rltraining-operator/{PRODUCTION}" in text


PRODUCTION = "values-production.yaml"
