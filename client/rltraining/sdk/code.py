"""Packs user code into a ConfigMap that is sent to the cluster with a job."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from rltraining.jobfile import FILE_NAME
from rltraining.sdk.api import Json
from rltraining.sdk.errors import JobRejectedError

DIGITS = 10


def with_code(manifest: Json, files: Iterable[str | os.PathLike[str]]) -> tuple[Json, Json]:
    """Returns the manifest with a `spec.code` that refers to a ConfigMap of these files, and the
    ConfigMap, such as `code-3b1f0c9a52`.

    The name is a digest of the content, and the ConfigMap is immutable. Code that is sent later
    gets another ConfigMap, so a pod that is created again has the code with which its job started.

    Raises JobRejectedError for files that cannot be in a ConfigMap.
    """
    if manifest["spec"].get("code") is not None:
        raise JobRejectedError("spec.code: names a ConfigMap already: leave that out, or send no files")
    data: dict[str, str] = {}
    for path in map(Path, files):
        if path.name in data:
            raise JobRejectedError(f"code: {path}: there are two files {path.name}: give each its own name")
        data[path.name] = _text(path)
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    name = f"code-{digest[:DIGITS]}"
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": data,
        "immutable": True,
    }
    return {**manifest, "spec": {**manifest["spec"], "code": {"configMap": {"name": name}}}}, config_map


def _text(path: Path) -> str:
    if path.is_dir():
        raise JobRejectedError(f"code: {path}: is a folder: name its files; put packages into an image")
    if not FILE_NAME.fullmatch(path.name) or path.name.startswith(".."):
        raise JobRejectedError(f"code: {path}: its name may have letters, digits, - _ . only")
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise JobRejectedError(f"code: {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise JobRejectedError(f"code: {path}: is not text: put data into an image") from None
