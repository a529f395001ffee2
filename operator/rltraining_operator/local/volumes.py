"""Provides volumes without mounts: a directory per volume, and environment values in which mount
paths are replaced."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rltraining_operator.errors import ClusterError
from rltraining_operator.pods.build import OUTPUT_VOLUME, TERMINATION_LOG

Json = Mapping[str, Any]
Find = Callable[[str, str], Json | None]
"""Returns an object by kind and name."""

FILLED = ("configMap", "secret", "emptyDir")
"""Kinds of volumes with the same content as in a cluster."""


class MountError(ClusterError):
    """A volume cannot be created yet. The message is that of a kubelet."""


class Volumes:
    """The volumes of one pod, under its own directory. The volume `output` is the workdir, whatever
    its source."""

    def __init__(self, pod: Json, folder: Path, workdir: Path, find: Find) -> None:
        self._specs: list[Json] = pod["spec"].get("volumes", [])
        self._folder = folder
        self._workdir = workdir
        self._find = find

    def refresh(self) -> None:
        """Creates or updates the files, each of them atomically. Raises `MountError`."""
        for volume in self._specs:
            folder = self.path(volume["name"])
            folder.mkdir(parents=True, exist_ok=True)
            for name, (data, mode) in self._files(volume).items():
                _replace(folder / name, data, mode)

    def remove(self) -> None:
        """Deletes the pod's directory."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def path(self, volume: str) -> Path:
        """Returns the directory of a volume."""
        return self._workdir if volume == OUTPUT_VOLUME else self._folder / volume

    def localize(self, env: Mapping[str, str], container: Json) -> dict[str, str]:
        """Returns the environment with paths below a mount path replaced by paths of this host."""
        paths = {
            mount["mountPath"].rstrip("/"): self.path(mount["name"])
            for mount in container.get("volumeMounts", [])
        }
        paths[TERMINATION_LOG] = self.termination_log
        local = dict(env)
        for name, value in env.items():
            for inside, outside in paths.items():
                if value == inside or value.startswith(inside + "/"):
                    local[name] = str(outside) + value[len(inside) :]
        return local

    @property
    def termination_log(self) -> Path:
        """The file of the termination message."""
        return self._folder / "termination-log"

    def _files(self, volume: Json) -> dict[str, tuple[bytes, int]]:
        if "configMap" in volume:
            source = self._object("ConfigMap", volume["configMap"]["name"])
            return {name: (text.encode(), 0o644) for name, text in (source.get("data") or {}).items()}
        if "secret" in volume:
            source = self._object("Secret", volume["secret"]["secretName"])
            return {
                name: (base64.b64decode(data), 0o600) for name, data in (source.get("data") or {}).items()
            }
        return {}

    def _object(self, kind: str, name: str) -> Json:
        found = self._find(kind, name)
        if found is None:
            raise MountError(f'{kind.lower()} "{name}" not found')
        return found


def _replace(path: Path, data: bytes, mode: int) -> None:
    if path.exists() and path.read_bytes() == data:
        return
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    fresh.replace(path)
