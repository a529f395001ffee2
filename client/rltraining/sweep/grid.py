"""Parses `--sweep PATH=A,B` and `--seeds N`, and computes the points. Pure."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rltraining_api import yaml_text
from rltraining_api.errors import ManifestError
from rltraining_api.introspect import dotted
from rltraining_api.overrides import parse_path

from rltraining.errors import UsageError
from rltraining.units import plural

RUNS_MAX = 256
SEED = "spec.seed"
_OPENING, _CLOSING = "[{", "]}"
_TOKEN = re.compile(
    r"""(?<![^\s,:\[{])(?:"(?:[^"\\]|\\.)*"|'[^']*'|(?P<open>["']))|.""",
    re.DOTALL,
)
"""Matches a quoted text, an unclosed quote, or a character. A quote within a word is an ordinary
character."""


@dataclass(frozen=True)
class Axis:
    """A field with its values."""

    path: str
    """The path from the manifest's root, such as `spec.algorithm.impala.learningRate`."""
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Point:
    """The values of one job of a sweep."""

    seed: int
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values by path, without the seed."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The values as `path=value`, as given to --set. JSON is valid YAML."""
        return (
            *(f"{path}={json.dumps(value)}" for path, value in self.values.items()),
            f"{SEED}={self.seed}",
        )


def parse_axes(sweeps: Sequence[str]) -> tuple[Axis, ...]:
    """Parses each --sweep. Raises UsageError."""
    axes = tuple(_axis(text) for text in sweeps)
    paths = [axis.path for axis in axes]
    for i, path in enumerate(paths):
        if paths.count(path) > 1:
            raise UsageError(
                f"--sweep {path}: is given twice: give all its values in one list, separated by commas"
            )
        if whole := next((later for later in (*paths[i:], SEED) if path.startswith(f"{later}.")), None):
            raise UsageError(f"--sweep {path}: is a part of {whole}, which is set after it: leave one out")
    return axes


def points(axes: Sequence[Axis], seeds: int | None, first_seed: int) -> tuple[Point, ...]:
    """Returns the grid of all axes. The seeds of each point are consecutive.

    The seeds are the values of an axis `spec.seed`, or `seeds` numbers from `first_seed`. Raises
    UsageError.
    """
    named = next((axis.values for axis in axes if axis.path == SEED), None)
    if named is not None and seeds is not None:
        raise UsageError(f"--seeds and --sweep {SEED} exclude each other: leave one out")
    if seeds is not None and seeds < 1:
        raise UsageError(f"--seeds: must be at least 1, got {seeds}")
    others = [axis for axis in axes if axis.path != SEED]
    number = math.prod(len(axis.values) for axis in others) * ((seeds or 1) if named is None else len(named))
    if number > RUNS_MAX:
        raise UsageError(f"the sweep makes {plural(number, 'run')}, more than {RUNS_MAX}: leave values out")
    drawn = range(first_seed, first_seed + (seeds or 1)) if named is None else named
    paths = [axis.path for axis in others]
    return tuple(
        Point(seed, dict(zip(paths, values, strict=True)))
        for values in itertools.product(*(axis.values for axis in others))
        for seed in drawn
    )


def split(text: str) -> list[str]:
    """Splits at commas outside brackets and quotes.

    Raises ValueError for unclosed brackets or quotes.
    """
    parts, depth = [""], 0
    for found in _TOKEN.finditer(text):
        piece = found[0]
        if found["open"]:
            raise ValueError("a quote is not closed")
        depth += (piece in _OPENING) - (piece in _CLOSING)
        if depth < 0:
            raise ValueError(f"{piece!r} closes nothing")
        if piece == "," and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    if depth:
        raise ValueError("a bracket is not closed")
    return [part.strip() for part in parts]


def _axis(text: str) -> Axis:
    option = f"--sweep {text}"
    name, equals, listed = text.partition("=")
    if not equals:
        raise UsageError(f"{option}: must be path=value,value, as in algorithm.impala.learningRate=1e-4,3e-4")
    try:
        path = parse_path(name, option)
        values = tuple(_values(listed))
    except ManifestError as error:
        raise UsageError(*error.problems) from None
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if path[0] != "spec":
        raise UsageError(f"{option}: only fields of spec can be swept")
    if len(values) == 1:
        raise UsageError(f"{option}: one value is no sweep: give several with commas between, or use --set")
    if dotted(path) == SEED and not all(type(value) is int for value in values):
        raise UsageError(f"{option}: seeds must be whole numbers")
    return Axis(dotted(path), values)


def _values(listed: str) -> Iterator[Any]:
    seen: set[str] = set()
    for part in split(listed):
        if not part:
            raise ValueError("a value is missing: null removes a field, '' is empty text")
        value = yaml_text.value(part)
        try:
            canonical = json.dumps(value, sort_keys=True, allow_nan=False)
        except TypeError:
            raise ValueError(f"{part} is not a JSON value: leave out the tag") from None
        except ValueError:
            raise ValueError(f"{part} is not a JSON value: numbers must be finite") from None
        if canonical in seen:
            raise ValueError(f"{part} is listed twice among the values")
        seen.add(canonical)
        yield value
