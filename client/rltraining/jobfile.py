"""Reads manifests from files and standard input, with the user code that belongs to them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rltraining_api.base import any_of
from rltraining_api.bounds import BYTES_MAX
from rltraining_api.job import Metadata, RLTrainingJob
from rltraining_api.manifest import ManifestError, load_manifest_and_others

from rltraining import built_in
from rltraining.errors import UsageError
from rltraining.whole_file import write_whole

STDIN = "-"
SOURCE_ANNOTATION = "rltraining.dev/source"
"""Path of the manifest from which a run was started, so that `--resume` finds user modules beside
it."""
FILE_NAME = re.compile(r"[-._a-zA-Z0-9]{1,253}")
"""The keys that Kubernetes allows in a ConfigMap."""

JOB_NAME = "job.yaml"
"""Name of the manifest in the folder of a project or a run."""
SAVED_HEADER = "# The manifest of this run, with all defaults filled in; written by rltrain."


@dataclass(frozen=True)
class JobFile:
    """A job with the other objects of its file."""

    job: RLTrainingJob
    config_maps: tuple[dict[str, Any], ...] = ()
    """ConfigMaps of the same file, to which `spec.code` may refer."""

    @property
    def code_folder(self) -> Path | None:
        """The folder of the manifest, which may contain user modules. None for standard input."""
        origin = source_of(self.job)
        return Path(origin).parent if origin else None

    def save(self, path: Path) -> None:
        """Writes the manifest of the run, with the defaults that are the same for all tasks, so that `load` can read it.

        Raises OSError, and then leaves an existing file unchanged.
        """
        documents = yaml.safe_dump_all([manifest(self.job), *self.config_maps], sort_keys=False)
        write_whole(path, f"{SAVED_HEADER}\n{documents}")


def source_of(job: RLTrainingJob) -> str | None:
    """Returns the path of the manifest from which the job was read, or None for standard input."""
    return (job.metadata.annotations or {}).get(SOURCE_ANNOTATION)


def source(file: str) -> Path | str:
    """Returns the input of the contract's readers: the path of a file, of the job.yaml in a folder
    or of a built-in example or, for `-`, the text of standard input. Raises UsageError."""
    if file != STDIN:
        return built_in.find(file) or _existing(_manifest_in(Path(file)), file)
    try:
        return sys.stdin.read(BYTES_MAX + 1)  # larger input is rejected
    except UnicodeDecodeError:
        raise UsageError("standard input: is not UTF-8 text") from None


def _manifest_in(path: Path) -> Path:
    """Returns the job.yaml of a folder, and any other path unchanged."""
    try:
        return path / JOB_NAME if (path / JOB_NAME).is_file() else path
    except OSError:  # such as a name that is too long: the reader reports it
        return path


def _existing(path: Path, named: str) -> Path:
    """Returns the path. Raises UsageError if there is no such file, with the examples that may be meant."""
    try:
        path.stat()
    except FileNotFoundError:
        close = built_in.similar(named)
        if close:
            hint = f": did you mean the example {any_of(close)}? All are listed by rltrain examples"
        else:
            hint = (
                ""
                if path.suffix or "/" in named
                else ", and no example of this name: rltrain examples lists all"
            )
        raise UsageError(f"{named}: there is no such file{hint}") from None
    except OSError:  # the reader reports it
        pass
    return path


def load(file: str, overrides: Iterable[str] = ()) -> JobFile:
    """Loads the only job of a file (`-`: standard input). Raises UsageError with a sentence per
    problem."""
    return load_from(source(file), overrides)


def load_from(origin: Path | str, overrides: Iterable[str] = ()) -> JobFile:
    """Loads a job like `load`, from the result of `source`. Raises UsageError."""
    try:
        job, others = load_manifest_and_others(origin, overrides)
    except ManifestError as error:
        raise UsageError(*error.problems) from None
    config_maps = tuple(map(_checked, filter(_is_config_map, others)))
    return JobFile(_as_new(job, origin if isinstance(origin, Path) else None), config_maps)


def manifest(job: RLTrainingJob) -> dict[str, Any]:
    """Returns the job as a manifest, with the defaults that are the same for all tasks."""
    data = job.to_dict()
    data.pop("status", None)
    return data


def _as_new(job: RLTrainingJob, path: Path | None) -> RLTrainingJob:
    """Returns the job without the fields of an API server, and with the path of its manifest unless
    it has one."""
    origin = {SOURCE_ANNOTATION: str(path.resolve())} if path else {}
    metadata = Metadata(
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        labels=job.metadata.labels,
        annotations=(origin | (job.metadata.annotations or {})) or None,
    )
    return job.model_copy(update={"metadata": metadata})


def _is_config_map(document: dict[str, Any]) -> bool:
    return bool(document["kind"] == "ConfigMap")


def _checked(config_map: dict[str, Any]) -> dict[str, Any]:
    """Returns a valid ConfigMap. Raises UsageError if an API server would reject it, or if a key is
    not a safe file name."""
    metadata, data = config_map.get("metadata"), config_map.get("data") or {}
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        raise UsageError("a ConfigMap in the manifest's file has no metadata.name: give it one")
    if not isinstance(data, dict) or not all(isinstance(text, str) for text in data.values()):
        raise UsageError(f"ConfigMap {name}: data must be an object of texts: put numbers in quotes")
    for key in data:
        if not FILE_NAME.fullmatch(key) or key.startswith(".."):
            raise UsageError(
                f"ConfigMap {name}: data.{key}: a key must be a file's name: letters, digits, - _ ."
            )
    return config_map
