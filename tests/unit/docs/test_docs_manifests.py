"""Manifests that stand in the pages are right."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from docs_pages import ROOT, Block, blocks
from rltraining_api.errors import ManifestError
from rltraining_api.manifest import load_manifest, parse_job

ELLIPSIS = "  ..."
"""A line of a manifest that says: and so on."""
SHORTEST = {
    "algorithm": {"impala": {}},
    "environment": {"id": "CartPole-v1"},
    "stop": {"environmentSteps": 1},
}
"""What a part of a spec needs to be a whole one."""


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_valid(example: Any) -> None:
    load_manifest(example)


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_manifest_in_a_page_is_valid(block: Block) -> None:
    text = "\n".join(line for line in block.text.splitlines() if line != ELLIPSIS)
    for document in yaml.safe_load_all(text):
        if document.get("kind", "RLTrainingJob") != "RLTrainingJob" or "spec" not in document:
            continue
        whole = {
            "apiVersion": "rltraining.dev/v1alpha1",
            "kind": "RLTrainingJob",
            "metadata": {"name": "page"},
            **document,
            "spec": SHORTEST | document["spec"],
        }
        try:
            parse_job(whole)
        except ManifestError as error:
            pytest.fail(f"{block}: {error}")
