"""`--set path=value`: changes to a manifest before it is validated."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any

from rltraining_api import yaml_text
from rltraining_api.errors import ManifestError
from rltraining_api.introspect import allows_null, dotted, field_at, is_choice
from rltraining_api.job import RLTrainingJob

_ROOTS = ("apiVersion", "kind", "metadata", "spec")
_STEP = re.compile(r"([^.\[\]=]+)((?:\[\d+\])*)")


def apply_overrides(data: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """A copy of a manifest's data in which each `path=value` holds.

    A path is as in `kubectl explain`, with or without `spec.` before it; `[0]` picks from a list. The value
    is YAML: `1e-3` is a number, `[64, 64]` a list. `path=null` removes the field, except where null is a
    valid value. `algorithm=ppo` is short for `algorithm={ppo: {}}`, and so for each object of which
    one field is set. Raises ManifestError.
    """
    changed = copy.deepcopy(data)
    for assignment in assignments:
        path, value = _parse(assignment)
        try:
            _assign(changed, path, value)
        except _NoSuchPath as error:
            raise ManifestError([f"{_option(assignment)}: {error}"]) from None
    return changed


class _NoSuchPath(Exception):
    """Raised if the path passes through a value that is neither an object nor a list with the given
    item."""


def _parse(assignment: str) -> tuple[list[str | int], Any]:
    text, equals, value = assignment.partition("=")
    if not equals:
        raise ManifestError([f"{_option(assignment)}: must be path=value, as in environment.numEnvs=4"])
    path = parse_path(text, _option(assignment))
    try:
        return path, yaml_text.value(value)
    except yaml_text.YamlError as error:
        raise ManifestError([f"{_option(assignment)}: {error}"]) from None


def _option(assignment: str) -> str:
    """Returns the option as typed, on one line and truncated."""
    line = " ".join(assignment.split())
    return f"--set {line if len(line) <= 80 else f'{line[:77]}...'}"


def parse_path(text: str, option: str) -> list[str | int]:
    """`algorithm.impala` → `["spec", "algorithm", "impala"]`. Raises ManifestError, which names the option."""
    path: list[str | int] = []
    for part in text.strip().split("."):
        step = _STEP.fullmatch(part)
        if step is None:
            raise ManifestError([f"{option}: {text!r} is not a path, as in spec.environment.numEnvs"])
        path += [step[1], *(int(index) for index in re.findall(r"\d+", step[2]))]
    if path[0] not in _ROOTS:
        path.insert(0, "spec")
    return path


def _assign(data: dict[str, Any], path: list[str | int], value: Any) -> None:
    parent: Any = data
    for depth, step in enumerate(path[:-1]):
        if isinstance(parent, dict) and isinstance(step, str) and parent.get(step) is None:
            parent[step] = {}
        _check(parent, step, path[:depth])
        parent = parent[step]
    last = path[-1]
    if isinstance(last, int) or not isinstance(parent, dict):
        _check(parent, last, path[:-1])
    field = field_at(RLTrainingJob, path)
    if value is None and isinstance(parent, dict) and field is not None and not allows_null(field):
        parent.pop(last, None)
    elif isinstance(value, str) and isinstance(last, str) and field is not None and is_choice(field):
        parent[last] = {value: {}}
    else:
        parent[last] = value


def _check(parent: Any, step: str | int, so_far: list[str | int]) -> None:
    name = dotted(so_far) or "the manifest"
    if isinstance(step, int):
        if not isinstance(parent, list):
            raise _NoSuchPath(f"{name} is not a list")
        if step >= len(parent):
            raise _NoSuchPath(f"{name} has only {len(parent)} items")
    elif not isinstance(parent, dict):
        raise _NoSuchPath(f"{name} is not an object")
