"""Names the points of a sweep, such as `learningRate=0.0001,seed=0`."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rltraining.sweep.grid import Point

NAME_MAX = 150
"""Maximum characters of a folder's name. File systems allow 255 bytes."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=,-]+")


def short_paths(paths: Sequence[str]) -> dict[str, str]:
    """Returns the shortest unique end of each path, such as `learningRate` or
    `sampler.replicas`."""
    return {path: _short(path, paths) for path in paths}


def text(value: Any) -> str:
    """Formats a value, such as `0.0001`, `relu` or `[64,64]`. The algorithm `{impala: {}}` is
    `impala`, with settings `impala(discount=0.9)`. A user's algorithm is named by its module."""
    if isinstance(value, dict) and len(value) == 1:
        name, settings = next(iter(value.items()))
        if name == "entryPoint" and isinstance(settings, dict) and "module" in settings:
            name, settings = settings["module"], settings.get("parameters")
        if not settings:
            return str(name)
        if isinstance(settings, dict):
            return f"{name}({','.join(f'{key}={text(inner)}' for key, inner in settings.items())})"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def titled(values: Mapping[str, Any]) -> str:
    """Formats values, such as `learningRate=0.0001,replicas=2`."""
    short = short_paths(list(values))
    return ",".join(f"{short[path]}={text(value)}" for path, value in values.items())


def folder_names(points: Sequence[Point]) -> list[str]:
    """Returns a folder name for each point. The names differ even if the file system ignores
    case."""
    names: list[str] = []
    taken: set[str] = set()
    for point in points:
        name = _safe(titled({**point.values, "seed": point.seed}))
        alternatives = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
        names.append(next(other for other in alternatives if other.lower() not in taken))
        taken.add(names[-1].lower())
    return names


def _safe(name: str) -> str:
    """Replaces characters that are special in file systems or shells. `[64,64]` becomes `64-64`,
    and `ppo(epochs=2)` becomes `ppo-epochs=2`."""
    lists_joined = re.sub(r"\[([^\[\]]*)\]", lambda found: found[1].replace(",", "-"), name)
    return _UNSAFE.sub("-", lists_joined.replace(")", ""))[:NAME_MAX].strip("-.")


def _short(path: str, paths: Sequence[str]) -> str:
    steps = path.split(".")
    others = [other.split(".") for other in paths if other != path]
    for length in range(1, len(steps)):
        if all(other[-length:] != steps[-length:] for other in others):
            return ".".join(steps[-length:])
    return path
