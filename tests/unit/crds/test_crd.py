"""The CRD: up to date, structural, bounded, described, and consistent with the models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from rltraining_api.crd import COLUMNS, FILE_NAME, crd, crd_yaml
from rltraining_api.job import WITH_REPLAY, RLTrainingJob

COMMITTED = Path(__file__).parents[3] / "crds" / FILE_NAME


@cache
def version() -> dict[str, Any]:
    """Returns the definition's only version."""
    (only,) = crd()["spec"]["versions"]
    return dict(only)


def root() -> dict[str, Any]:
    """Returns the schema of a job."""
    schema: dict[str, Any] = version()["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields every schema in a schema, with its path; `[]` is the item of a list."""
    yield path, schema
    for key, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{key}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


@cache
def fields() -> dict[str, dict[str, Any]]:
    """Returns the schema of each field and item, by its path."""
    return {path: node for path, node in nodes(root()) if path not in ("", ".metadata")}


def filled(value: Any, schema: dict[str, Any]) -> Any:
    """Returns a value with the API server's defaults, filled in from the outside in."""
    if isinstance(value, list):
        return [filled(item, schema["items"]) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    defaults = {key: child["default"] for key, child in schema["properties"].items() if "default" in child}
    return {key: filled(item, schema["properties"].get(key, {})) for key, item in (defaults | value).items()}


def test_the_committed_file_is_current_and_fits_into_the_annotation_of_client_side_apply() -> None:
    text = crd_yaml()
    assert COMMITTED.read_text(encoding="utf-8") == text, "run: make crd"
    assert len(text) < 200_000
    assert yaml.load(text, yaml.CSafeLoader) == crd()


def test_every_field_is_described_bounded_and_typed() -> None:
    for path, node in fields().items():
        assert path.endswith("[]") or len(node["description"]) > 3, path
        if node["type"] == "string" and path not in (".apiVersion", ".kind"):
            assert "maxLength" in node or "enum" in node, path
        if node["type"] == "array":
            assert "maxItems" in node, path
            assert "x-kubernetes-list-type" in node, path
        if node["type"] in ("integer", "number") and path.startswith(".spec"):
            assert {"minimum", "maximum"} <= node.keys(), path
        if node["type"] == "object":
            assert ("properties" in node) != ("x-kubernetes-preserve-unknown-fields" in node), path
        for key in node.get("x-kubernetes-list-map-keys", ()):
            assert key in node["items"]["required"], path
        assert not (path.startswith(".status") and "default" in node), path


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"algorithm": {"impala": {"optimizer": {"adam": {}}}}},
        {"algorithm": {"a3c": {}}},
        {"algorithm": {"a3c": {"aggregate": {"mode": "Sync", "count": None}, "nStep": 3}}},
        {"algorithm": {"entryPoint": {"module": "a.b"}}},
        {"algorithm": {"entryPoint": {"module": "a", "parameters": {"b": None}}}},
        {"algorithm": {"ddpgApex": {"replay": {"placement": "Dedicated"}}}, "replay": {}},
        {"network": {"mlp": {}, "lstm": {}}},
        {"network": {"impalaCnn": {}}},
        {"checkpoint": {"volume": {"claimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}},
        {
            "runPolicy": {
                "podFailurePolicy": {"rules": [{"action": "Count", "onPodConditions": [{"type": "X"}]}]}
            }
        },
        {"stop": {"smoothedReturn": {"atLeast": 1}}},
        {"sampler": {"replicas": 2, "autoscale": {"max": 4}}},
        {"runPolicy": {"schedulingPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 60}}}},
    ],
)
def test_an_api_server_fills_in_what_the_models_fill_in(spec: dict[str, Any]) -> None:
    least = {"algorithm": {"impala": {}}, "environment": {"id": "A-v0"}, "stop": {"seconds": 1}}
    header = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "a"}}
    job = RLTrainingJob.model_validate(header | {"spec": least | spec})
    stored = filled(least | spec, root()["properties"]["spec"])
    assert stored == job.to_dict()["spec"]


def test_every_default_obeys_its_bounds() -> None:
    for path, node in fields().items():
        value = node.get("default")
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert node["minimum"] <= value <= node["maximum"], path
            assert not (node.get("exclusiveMinimum") and value == node["minimum"]), path
        if "enum" in node and value is not None:
            assert value in node["enum"], path


def test_rules_name_fields_that_exist() -> None:
    for path, node in [("", root()), *fields().items()]:
        for validation in node.get("x-kubernetes-validations", ()):
            for reference in re.findall(r"(?:self|oldSelf)((?:\.\w+)+)(\(?)", validation["rule"]):
                steps, call = reference[0].strip(".").split("."), reference[1]
                field = "." + ".".join(steps[:-1] if call else steps)
                known = path + field in fields() or field == ".metadata.name"
                assert known, f"{path}: {validation['rule']}"
            assert validation["message"]


def _rules() -> list[dict[str, str]]:
    return list(fields()[".spec"]["x-kubernetes-validations"])


def test_everything_that_may_change_is_named() -> None:
    rules = " ".join(rule["rule"] for rule in _rules())
    fixed = set(re.findall(r"== oldSelf\.([\w.]+)", rules))
    mutable = {"sampler", "stop", "runPolicy"}
    assert {path for path in fixed if path.startswith("checkpoint")} == {
        "checkpoint.uri",
        "checkpoint.volume",
        "checkpoint.resumeFrom",
    }
    assert {path.split(".")[0] for path in fixed} | mutable == set(fields()[".spec"]["properties"])
    assert {"sampler.template", "runPolicy.managedBy", "runPolicy.schedulingPolicy"} <= fixed
    template = [rule["rule"] for rule in _rules() if "oldSelf.sampler" in rule["rule"]]
    assert len(template) == 1
    for name in WITH_REPLAY:
        holds_shards = f"has(self.algorithm.{name}) && self.algorithm.{name}.replay.placement == 'Samplers'"
        assert holds_shards in template[0]
    assert not any(path.startswith("stop") for path in fixed)


def test_columns_and_scale_point_at_fields() -> None:
    known = fields()
    types = {"string": "string", "integer": "integer", "number": "number"}
    for name, kind, path, _ in COLUMNS:
        assert name == "Age" or known[path]["type"] == types[kind], name
    scale = version()["subresources"]["scale"]
    assert {known[path]["type"] for path in scale.values()} == {"integer", "string"}
