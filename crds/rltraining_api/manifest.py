"""Parses YAML into a validated job, and describes errors in sentences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from pydantic import ValidationError

from rltraining_api import yaml_text
from rltraining_api.bounds import BYTES_MAX, TOO_LARGE, beyond_bounds
from rltraining_api.errors import ManifestError
from rltraining_api.explain import empty_fields, explain
from rltraining_api.introspect import Path as FieldPath
from rltraining_api.introspect import dotted
from rltraining_api.job import RLTrainingJob
from rltraining_api.names import API_VERSION, GROUP, KIND
from rltraining_api.overrides import apply_overrides

__all__ = [
    "ManifestError",
    "Manifests",
    "apply_overrides",
    "load_manifest",
    "load_manifest_and_others",
    "load_manifests",
    "parse_job",
    "read_job",
]


@dataclass(frozen=True)
class Manifests:
    """Documents of a file."""

    jobs: tuple[RLTrainingJob, ...]
    others: tuple[dict[str, Any], ...]
    """Documents of other kinds, unchanged, such as a ConfigMap with user code."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns one sentence per document of another kind."""
        return tuple(f"{_title(other)} is not an {KIND} and was not checked" for other in self.others)


def load_manifest(source: str | Path, overrides: Iterable[str] = ()) -> RLTrainingJob:
    """The one job of a manifest: a `Path` is read, a `str` is the YAML itself. Overrides are `path=value`.

    The text may also contain documents of other kinds. Raises ManifestError.
    """
    return load_manifest_and_others(source, overrides)[0]


def load_manifest_and_others(
    source: str | Path, overrides: Iterable[str] = ()
) -> tuple[RLTrainingJob, tuple[dict[str, Any], ...]]:
    """Loads the one job of a manifest, as `load_manifest`, and the documents of other kinds.

    Raises ManifestError.
    """
    text, label = _text(source)
    mine, others = _split(text, label)
    if not mine:
        found = f", found {' and '.join(map(_title, others))}" if others else ""
        raise ManifestError([f"{label}: kind: must be {KIND}{found}"])
    if len(mine) > 1:
        raise ManifestError([f"{label}: holds {len(mine)} jobs, but one is needed: split the file"])
    data = mine[0]
    if isinstance(data, dict):
        data = apply_overrides(data, overrides)
    return parse_job(data, label), tuple(others)


def load_manifests(source: str | Path, overrides: Iterable[str] = ()) -> Manifests:
    """All jobs of a manifest, and the documents of other kinds. Overrides are `path=value`, for each job.

    Raises ManifestError with the problems of all jobs.
    """
    text, label = _text(source)
    mine, others = _split(text, label)
    jobs: list[RLTrainingJob] = []
    problems: list[str] = []
    changes = tuple(overrides)
    for number, data in enumerate(mine, start=1):
        try:
            if isinstance(data, dict):
                data = apply_overrides(data, changes)
            jobs.append(parse_job(data, label if len(mine) == 1 else f"{label}: job {number}"))
        except ManifestError as error:
            problems += error.problems
    if problems:
        raise ManifestError(problems)
    return Manifests(tuple(jobs), tuple(others))


def parse_job(data: object, label: str = "manifest") -> RLTrainingJob:
    """A job from a manifest's data, as a user writes it: camelCase only, JSON types only, nothing unknown.

    A `status` is not the user's and is left out. Raises ManifestError.
    """
    if not isinstance(data, dict):
        raise ManifestError([f"{label}: must be an object with apiVersion, kind, metadata and spec"])
    written = {key: value for key, value in data.items() if key != "status"}
    if too_much := beyond_bounds(written):
        raise ManifestError([f"{label}: {too_much}"])
    problems = _header(written) or empty_fields(written, RLTrainingJob)
    if not problems:
        try:
            return RLTrainingJob.model_validate_json(
                json.dumps(written, allow_nan=False), strict=True, by_alias=True, by_name=False
            )
        except ValidationError as error:
            no_json = any(each["type"] == "json_invalid" for each in error.errors())
            problems = (_no_json(written) if no_json else []) or explain(error, RLTrainingJob, written)
        except (ValueError, TypeError) as error:
            problems = _no_json(written) or [f"cannot be written as JSON: {error}"]
    raise ManifestError(f"{label}: {problem}" for problem in problems)


def read_job(data: Mapping[str, Any]) -> RLTrainingJob:
    """A job as an API server holds it, with its status; fields of newer versions are passed over.

    Raises ManifestError, where the object is older or newer than these models can read.
    """
    try:
        return RLTrainingJob.model_validate(data, extra="ignore")
    except ValidationError as error:
        raise ManifestError(explain(error, RLTrainingJob)) from None


def _no_json(value: Any, path: FieldPath = (), around: tuple[int, ...] = ()) -> list[str]:
    """One sentence per value that JSON, and so an API server, cannot hold; `around` are the ids of what holds it."""
    if isinstance(value, dict | list | tuple):
        if id(value) in around:
            return [f"{dotted(path)}: must not hold itself"]
        items = value.items() if isinstance(value, dict) else enumerate(value)
        if isinstance(value, dict) and (odd := [key for key in value if not _is_unicode(str(key))]):
            return [f"{dotted(path)}: keys must be Unicode text, got {ascii(odd[0])[:60]}"]
        return [line for key, item in items for line in _no_json(item, (*path, key), (*around, id(value)))]
    if isinstance(value, float):
        return [] if math.isfinite(value) else [f"{dotted(path)}: must be a finite number"]
    if isinstance(value, str):
        problem = f"{dotted(path)}: must be Unicode text, got {ascii(value)[:60]}"
        return [] if _is_unicode(value) else [problem]
    if value is None or isinstance(value, int):
        return []
    return [f"{dotted(path)}: must be a JSON value, got Python's {type(value).__name__}: write it as text"]


def _is_unicode(text: str) -> bool:
    """Whether it holds no half of a surrogate pair, as YAML's `"\\ud800"` is."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _header(data: Mapping[str, Any]) -> list[str]:
    """Returns the errors in apiVersion and kind. If there are any, no other errors are reported."""
    wanted = {"apiVersion": API_VERSION, "kind": KIND}
    return [
        f"{key}: must be {value}, got {shorten(str(data[key]), 60)}"
        if data.get(key)
        else f"{key}: is required: {value}"
        for key, value in wanted.items()
        if data.get(key) != value
    ]


def _read_text(source: Path) -> str:
    """Returns the YAML of a file. Raises ManifestError, also if the file is too large for a
    manifest."""
    try:
        with source.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
        if len(content) <= BYTES_MAX:
            return content.decode()
        problem = TOO_LARGE
    except FileNotFoundError:
        problem = "there is no such file"
    except IsADirectoryError:
        problem = "is a folder, a file is needed"
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise ManifestError([f"{source}: {problem}"])


def _text(source: str | Path) -> tuple[str, str]:
    """Returns the YAML and its name in messages."""
    return (source, "manifest") if isinstance(source, str) else (_read_text(source), str(source))


def _split(text: str, label: str) -> tuple[list[object], list[dict[str, Any]]]:
    """Separates the documents that are, or should be, jobs from the others."""
    try:
        documents = yaml_text.documents(text)
    except yaml_text.YamlError as error:
        raise ManifestError([f"{label}: {error}"]) from None
    if not documents:
        raise ManifestError([f"{label}: is empty: an {KIND} is needed"])
    others = [document for document in documents if _is_other(document)]
    return [document for document in documents if not _is_other(document)], others


def _is_other(document: object) -> bool:
    if not isinstance(document, dict):
        return False
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        return False
    return kind.lower() != KIND.lower() and not version.startswith(f"{GROUP}/")


def _title(document: Mapping[str, Any]) -> str:
    name = (document.get("metadata") or {}).get("name")
    return f"{document['kind']} {name}" if name else str(document["kind"])
