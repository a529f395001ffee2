"""JSON schemas for kubeconform from what an API server says of itself: no others are to be had without the internet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
LOCATION = "{{ .ResourceKind }}-{{ .Group }}-{{ .ResourceAPIVersion }}.json"
"""How kubeconform is to name the file of a kind; it calls the core group `v1`."""


def write_schemas(folder: Path, kinds: Iterable[tuple[str, str]], read: Callable[[str], Json]) -> str:
    """Write a schema for each (`apiVersion`, kind); `read` gets a document of the API by its path.
    Returns kubeconform's `-schema-location`."""
    for version, kind in sorted(set(kinds)):
        document = read(f"/openapi/v3/{'apis' if '/' in version else 'api'}/{version}")
        schemas = document["components"]["schemas"]
        (name,) = (name for name, schema in schemas.items() if _is(schema, version, kind))
        text = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": _strict(schemas)}}
        group, _, number = version.rpartition("/")
        (folder / f"{kind.lower()}-{group or version}-{number}.json").write_text(json.dumps(text))
    return f"{folder}/{LOCATION}"


def _is(schema: Json, version: str, kind: str) -> bool:
    """Whether it is that of a kind (and not of a list of it, or of the options with which it is deleted)."""
    mine = [
        "/".join(part for part in (each["group"], each["version"]) if part) + " " + each["kind"]
        for each in schema.get("x-kubernetes-group-version-kind", ())
    ]
    return mine == [f"{version} {kind}"]


def _strict(node: Any) -> Any:
    """The same, but objects with known fields have no others."""
    if isinstance(node, list):
        return [_strict(each) for each in node]
    if not isinstance(node, dict):
        return node
    strict = {key: _strict(value) for key, value in node.items()}
    open_ended = "additionalProperties" in node or node.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(node.get("properties"), dict) and node.get("type") == "object" and not open_ended:
        strict["additionalProperties"] = False
    return strict
