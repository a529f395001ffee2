"""Manifests in the examples and the pages are valid."""

from __future__ import annotations

import yaml
from docs_pages import ROOT, blocks
from rltraining_api.errors import ManifestError
from rltraining_api.manifest import load_manifest, parse_job

ELLIPSIS = "  ..."
"""The line of a manifest at which a page omits a part."""
WHOLE = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "page"}}
SHORTEST = {
    "algorithm": {"impala": {}},
    "environment": {"id": "CartPole-v1"},
    "stop": {"environmentSteps": 1},
}
"""Completions of a manifest and of its spec where a page shows only a part."""


def test_every_example_is_valid() -> None:
    for example in (ROOT / "examples").rglob("*.yaml"):
        load_manifest(example)


def test_every_manifest_in_a_page_is_valid() -> None:
    errors = []
    for block in blocks("yaml"):
        text = "\n".join(line for line in block.text.splitlines() if line != ELLIPSIS)
        for document in yaml.safe_load_all(text):
            if document.get("kind", "RLTrainingJob") != "RLTrainingJob" or "spec" not in document:
                continue
            try:
                parse_job(WHOLE | document | {"spec": SHORTEST | document["spec"]})
            except ManifestError as error:
                errors.append(f"{block}: {error}")
    assert not errors, "\n".join(errors)
