"""The inputs of an image (files that .dockerignore admits and the Dockerfile copies), and their hash."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[2]
IGNORE = ".dockerignore"


def admitted(root: Path = ROOT) -> list[str]:
    """Returns the paths of all files in the build context, relative to the root."""
    patterns = _patterns(root / IGNORE)
    found = []
    for top in sorted(_tops(patterns)):
        path = root / top
        files = [path] if path.is_file() else path.rglob("*")
        names = [str(file.relative_to(root)) for file in files if file.is_file()]
        found += [name for name in names if not _ignored(name, patterns)]
    return sorted(set(found))


def copied(dockerfile: Path) -> list[str]:
    """Returns the sources of COPY instructions that are in the context, as written in the Dockerfile."""
    found = []
    for line in dockerfile.read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--from"):
            found += words[1:-1]
    return found


def inputs(dockerfile: str, root: Path = ROOT) -> list[str]:
    """Returns the paths of all files that can change the Dockerfile's image, including the Dockerfile."""
    sources = copied(root / dockerfile)
    files = [
        name for name in admitted(root) if any(f"{name}/".startswith(f"{source}/") for source in sources)
    ]
    return sorted({dockerfile, IGNORE, *files})


def fingerprint(dockerfile: str, root: Path = ROOT) -> str:
    """Returns a hash of the inputs' names and contents: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for name in inputs(dockerfile, root):
        content = hashlib.sha256((root / name).read_bytes()).hexdigest()
        digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()[:16]


def snapshot(dockerfile: str, into: Path, root: Path = ROOT) -> str:
    """Copies the inputs, so that later edits do not reach the image. Returns the copy's fingerprint."""
    shutil.rmtree(into, ignore_errors=True)
    for name in inputs(dockerfile, root):
        copy = into / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, copy)
    return fingerprint(dockerfile, into)


def _patterns(ignore: Path) -> list[tuple[bool, str]]:
    """Returns (ignored, pattern) for each line."""
    lines = [line.strip() for line in ignore.read_text().splitlines()]
    return [
        (not line.startswith("!"), line.removeprefix("!").rstrip("/"))
        for line in lines
        if line and not line.startswith("#")
    ]


def _tops(patterns: list[tuple[bool, str]]) -> Iterator[str]:
    """Yields the names in a list that ignores everything and admits by name."""
    if patterns[:1] != [(True, "*")]:
        raise ValueError(f"{IGNORE} must begin with *, and admit what is needed")
    yield from (pattern for ignored, pattern in patterns if not ignored)


def _ignored(name: str, patterns: list[tuple[bool, str]]) -> bool:
    """Returns whether a builder ignores the path: the last pattern that matches it or a parent decides."""
    parts = name.split("/")
    paths = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    result = False
    for ignored, pattern in patterns:
        if pattern.startswith("**/"):
            match = any(fnmatchcase(part, pattern[3:]) for part in parts)
        else:
            match = any(
                path.count("/") == pattern.count("/") and fnmatchcase(path, pattern) for path in paths
            )
        if match:
            result = ignored
    return result
