"""Manifests from files and standard input, with the user code that comes with them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltraining_api import yaml_text
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import load_manifest

STDIN = "-"


@dataclass(frozen=True)
class JobFile:
    """A job and where it came from."""

    job: RLTrainingJob
    path: Path | None
    """None: standard input."""
    code: dict[str, str]
    """User code by file name, from the ConfigMap that `spec.code` names, if it stands in the same file."""


def source(file: str) -> Path | str:
    """What the contract's readers take: a path, or the text itself."""
    return sys.stdin.read() if file == STDIN else Path(file)


def load(file: str, overrides: Iterable[str] = ()) -> JobFile:
    """The one job of a file (`-`: standard input). Raises ManifestError."""
    origin = source(file)
    job = load_manifest(origin, overrides)
    path = origin if isinstance(origin, Path) else None
    return JobFile(job, path, _code(job, origin))


def manifest(job: RLTrainingJob) -> dict[str, Any]:
    """A job as its user would write it, with all defaults filled in; it can be loaded again."""
    data = job.to_dict()
    data.pop("status", None)
    return data


def _code(job: RLTrainingJob, origin: Path | str) -> dict[str, str]:
    if job.spec.code is None:
        return {}
    text = origin if isinstance(origin, str) else origin.read_text(encoding="utf-8")
    for document in yaml_text.documents(text):
        if _is_config_map(document, job.spec.code.config_map.name):
            return {str(name): str(code) for name, code in (document.get("data") or {}).items()}
    return {}


def _is_config_map(document: Any, name: str) -> bool:
    return (
        isinstance(document, dict)
        and document.get("kind") == "ConfigMap"
        and (document.get("metadata") or {}).get("name") == name
    )
