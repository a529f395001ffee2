"""Storage of checkpoints: directories of files that are published atomically.

On a local file system, rename and fsync make a directory visible with all its files. An object
store has neither. There, the file that is written last marks the directory as complete.
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

from rltraining_trainer.errors import BadConfiguration, install_remedy

OpenNew = Callable[[str], AbstractContextManager[BinaryIO]]
"""Opens a new file by name in the directory that is being published."""


class Storage(Protocol):
    """A root directory with subdirectories. The name ``""`` is the root itself.

    All methods raise OSError or an error of the driver if storage fails.
    """

    def uri(self, directory: str = "") -> str:
        """Returns the URI of a directory."""

    def directories(self) -> list[str]:
        """Returns the names of all directories in any order, or none without a root."""

    def publish(self, directory: str) -> AbstractContextManager[OpenNew]:
        """Writes a directory, which is visible after the block, or not at all if the block raises.

        Replaces the files of an existing directory and keeps its subdirectories. In an object store
        the old files are deleted at the start of the block.
        """

    def read(self, directory: str, file: str) -> bytes:
        """Returns the content of a regular file. Raises FileNotFoundError."""

    def size(self, directory: str, file: str) -> int:
        """Returns the size of a file in bytes. Raises FileNotFoundError."""

    def remove(self, directory: str) -> None:
        """Deletes a directory with its files."""


def open_storage(uri: str) -> Storage:
    """Returns the storage at a path or an fsspec URI.

    Raises BadConfiguration if no driver for the URI is installed.
    """
    try:
        fs, path = fsspec.core.url_to_fs(uri)
    except (ValueError, ImportError) as error:
        if isinstance(error, ImportError) and uri.startswith("s3://"):
            raise BadConfiguration(
                f"checkpoint uri {uri!r} needs the package s3fs, which is not installed: {install_remedy('s3')}"
            ) from error
        raise BadConfiguration(
            f"checkpoint uri {uri!r} cannot be used: {error}; "
            "use a path, file:// or a scheme whose fsspec driver is in the trainer image"
        ) from error
    if "file" in ([fs.protocol] if isinstance(fs.protocol, str) else fs.protocol):
        return LocalStorage(Path(path))
    return ObjectStorage(fs, path)


_UNFINISHED, _REMOVED = ".unfinished-", ".removed-"


class LocalStorage:
    """Directories on a mounted file system, written under hidden names and renamed."""

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
            # Delete incomplete directories first, since these may fill the disk.
            self._delete_incomplete()
            # Write and sync the files.
            unfinished.mkdir()
            yield lambda file: _synced(unfinished / file)
            _sync_directory(unfinished)
            # Replace the directory.
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
        # Rename the directory first, so that an interrupted deletion leaves no damaged checkpoint.
        removed = self._root / f"{_REMOVED}{directory}"
        shutil.rmtree(removed, ignore_errors=True)
        (self._root / directory).rename(removed)
        shutil.rmtree(removed)

    def _delete_incomplete(self) -> None:
        """Deletes directories that were left by killed processes."""
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
            # Report the first error.
            with suppress(Exception):
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
        # Some network file systems can sync only files.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
