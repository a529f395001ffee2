"""What a table of task-dependent defaults consists of: values, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rltraining_api.fields import Preset


class PresetValue(NamedTuple):
    """A default in the notation of a manifest, with its source."""

    value: Any
    source: str


Values = Mapping[str, PresetValue]
"""By path: `learningRate`, `replay.capacity`, `environment.numEnvs`."""
Presets = Mapping[Preset, Values]
"""The task-dependent defaults of an algorithm."""


def values_of(source: str, /, **values: Any) -> dict[str, PresetValue]:
    """Returns values of one source. A `__` in a name is a dot in its path."""
    return {name.replace("__", "."): PresetValue(value, source) for name, value in values.items()}
