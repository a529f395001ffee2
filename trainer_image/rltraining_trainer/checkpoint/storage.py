"""Where checkpoints lie: directories of a few files that appear whole or not at all.

Two kinds of storage with the same verbs. A local file system has rename and fsync, so a directory becomes
visible with all its files. An object store has neither: the file written last says that the rest is complete.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

import fsspec
from rltraining_api.files import open_regular

from rltraining_trainer.errors import BadConfiguration

OpenNew = Callable[[str], AbstractContextManager[BinaryIO]]
"""Opens a new file, by name, in the directory being published."""


class Storage(Protocol):
    """One directory of directories; ``""`` names it itself.

    All methods raise OSError, or the driver's own errors, when storage fails.
    """

    def uri(self, directory: str = "") -> str:
        """The URI of one directory, or of the whole."""

    def directories(self) -> list[str]:
        """Names of all directories, in no order; empty when nothing is there yet."""

    def publish(self, directory: str) -> AbstractContextManager[OpenNew]:
        """Write a directory: there whole after the block, and not at all when the block raises.

        Replaces the files of an existing directory and keeps its subdirectories. In an object store
        the old files are deleted when the block begins.
        """

    def read(self, directory: str, file: str) -> bytes:
        """The content of a regular file; FileNotFoundError when there is none."""

    def size(self, directory: str, file: str) -> int:
        """Bytes in a file; FileNotFoundError when there is none."""

    def remove(self, directory: str) -> None:
        """Delete a directory with its files."""


def open_storage(uri: str) -> Storage:
    """The storage that a plain path or any fsspec URI names.

    Raises BadConfiguration when no driver for the URI is installed.
    """
    try:
        fs, path = fsspec.core.url_to_fs(uri)
    except (ValueError, ImportError) as error:
        raise BadConfiguration(
            f"checkpoint uri {uri!r} cannot be used: {error}; "
            "use a path, file:// or a scheme whose fsspec driver is in the trainer image"
        ) from error
    if "file" in ([fs.protocol] if isinstance(fs.protocol, str) else fs.protocol):
        return LocalStorage(Path(path))
    return ObjectStorage(fs, path)


_UNFINISHED, _REMOVED = ".unfinished-", ".removed-"


class LocalStorage:
    """Directories on a mounted file system: written under a hidden name, synced, then renamed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def uri(self, directory: str = "") -> str:
        return f"file://{self._root / directory}"

    def directories(self) -> list[str]:
        try:
            return [path.name for path in self._root.iterdir() if path.is_dir()]
        except FileNotFoundError:
            return []

    @contextmanager
    def publish(self, directory: str) -> Iterator[OpenNew]:
        unfinished = self._root / f"{_UNFINISHED}{directory}"
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self._sweep()  # first, as it may be what fills the disk
            unfinished.mkdir()
            yield lambda file: _synced(unfinished / file)
            _sync_directory(unfinished)
            if (old := self._root / directory).exists():
                for kept in [path for path in old.iterdir() if path.is_dir()]:
                    kept.rename(unfinished / kept.name)
                self.remove(directory)
            unfinished.rename(self._root / directory)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        _sync_directory(self._root)

    def read(self, directory: str, file: str) -> bytes:
        with open_regular(self._root / directory / file) as opened:
            return opened.read()

    def size(self, directory: str, file: str) -> int:
        return (self._root / directory / file).stat().st_size

    def remove(self, directory: str) -> None:
        removed = (
            self._root / f"{_REMOVED}{directory}"
        )  # no longer a checkpoint, however far the deletion comes
        shutil.rmtree(removed, ignore_errors=True)
        (self._root / directory).rename(removed)
        shutil.rmtree(removed)

    def _sweep(self) -> None:
        """Delete what processes that died here left behind."""
        for path in self._root.iterdir():
            if path.name.startswith((_UNFINISHED, _REMOVED)):
                shutil.rmtree(path, ignore_errors=True)


class ObjectStorage:
    """Directories in an object store, or any other fsspec file system."""

    def __init__(self, fs: fsspec.AbstractFileSystem, root: str) -> None:
        self._fs = fs
        self._root = root.rstrip("/")

    def uri(self, directory: str = "") -> str:
        return str(self._fs.unstrip_protocol(self._path(directory)))

    def directories(self) -> list[str]:
        self._fs.invalidate_cache()
        try:
            entries = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return [
            entry["name"].rstrip("/").rpartition("/")[2] for entry in entries if entry["type"] == "directory"
        ]

    @contextmanager
    def publish(self, directory: str) -> Iterator[OpenNew]:
        try:
            self._remove_files(directory)
            self._fs.makedirs(self._path(directory), exist_ok=True)
            yield lambda file: self._fs.open(self._path(directory, file), "wb")
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell
                self._remove_files(directory)
            raise

    def read(self, directory: str, file: str) -> bytes:
        content: bytes = self._fs.cat_file(self._path(directory, file))
        return content

    def size(self, directory: str, file: str) -> int:
        return int(self._fs.info(self._path(directory, file))["size"])

    def remove(self, directory: str) -> None:
        self._fs.rm(self._path(directory), recursive=True)

    def _remove_files(self, directory: str) -> None:
        """Deletes the files of a directory, and the directory if it has no subdirectories."""
        self._fs.invalidate_cache()
        try:
            entries = self._fs.ls(self._path(directory), detail=True)
        except FileNotFoundError:
            return
        files = [entry["name"] for entry in entries if entry["type"] == "file"]
        if len(files) == len(entries):
            self.remove(directory)
        else:
            for file in files:
                self._fs.rm(file)

    def _path(self, *names: str) -> str:
        return "/".join((self._root, *filter(None, names)))


@contextmanager
def _synced(path: Path) -> Iterator[BinaryIO]:
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems sync files only
            raise
    finally:
        os.close(descriptor)
